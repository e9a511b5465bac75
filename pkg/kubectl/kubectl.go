// Package kubectl is kubectl's plugin headgate: it picks a node and runs headgate in the agent's
// pod there. Everything that it asks of a cluster it asks through kubectl, with its rights.
package kubectl

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

const usage = `Runs headgate in the agent's pod of a node, with the arguments that follow.

Usage:
  kubectl headgate [flags] COMMAND [ARGUMENTS]

Flags, before the command:
  --node NAME          the node; may be left out where there is one
  --of [NS/]POD        the node that a pod runs on
  --all-nodes          one node after the other; the exit code is the highest
  --namespace NAME     that of the agents, where several have a DaemonSet of them
  --context, --kubeconfig, --user, --cluster, --as, --request-timeout
                       are passed on to kubectl

Examples:
  kubectl headgate --all-nodes status
  kubectl headgate --node worker-1 explain default/web
  kubectl headgate --of default/shell flow list
  kubectl headgate --node worker-1 sysdump - > worker-1.tar.gz
`

// selector finds the DaemonSet of the agents and its pods, by the label that chart and manifests
// give them. Whoever may create a pod may give it that label, too.
const selector = "app.kubernetes.io/name=headgate"

// passedOn are flags of kubectl that say which cluster is meant.
var passedOn = []string{"context", "kubeconfig", "user", "cluster", "as", "request-timeout"}

// Flags returns the plugin's own flags, which pages may name.
func Flags() []string { return append([]string{"node", "of", "all-nodes", "namespace"}, passedOn...) }

// Run runs a command line and returns the exit code of the process: that of headgate, or 1
// with one line on stderr.
func Run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	p := plugin{stdin: stdin, stdout: stdout, stderr: stderr}
	code, err := p.run(ctx, args)
	if err != nil {
		fmt.Fprintf(stderr, "kubectl headgate: %s\n", strings.Join(strings.Fields(err.Error()), " "))
		return max(code, 1)
	}
	return code
}

type plugin struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	cluster        []string // flags of kubectl
	node, of       string
	namespace      string // of the agents, "" where there is one
	all            bool
}

// agentPod is a pod of an agent.
type agentPod struct{ node, namespace, name, phase string }

func (p *plugin) run(ctx context.Context, args []string) (int, error) {
	command, err := p.parse(args)
	if err != nil {
		return 1, err
	}
	if len(command) == 0 {
		_, err := io.WriteString(p.stdout, usage)
		return 0, err
	}
	pods, err := p.choose(ctx)
	if err != nil {
		return 1, err
	}
	worst := 0
	for _, pod := range pods {
		if p.all {
			fmt.Fprintf(p.stdout, "== %s\n", pod.node)
		}
		code, err := p.exec(ctx, pod, command)
		if worst = max(worst, code); err != nil {
			return worst, err
		}
	}
	return worst, nil
}

// parse takes the plugin's own flags and returns the rest: headgate's command.
func (p *plugin) parse(args []string) (command []string, err error) {
	for len(args) > 0 && strings.HasPrefix(args[0], "-") {
		dashed, value, joined := strings.Cut(args[0], "=")
		flag := strings.TrimLeft(dashed, "-")
		args = args[1:]
		switch flag {
		case "h", "help":
			return nil, nil
		case "all-nodes":
			p.all = true
			continue
		}
		known := slices.Contains(passedOn, flag)
		if !known && flag != "node" && flag != "of" && flag != "namespace" {
			return nil, fmt.Errorf("unknown flag %s: flags of headgate stand behind its command; kubectl headgate --help lists those before it", dashed)
		}
		if !joined {
			if len(args) == 0 {
				return nil, fmt.Errorf("--%s: a value is missing", flag)
			}
			value, args = args[0], args[1:]
		}
		switch {
		case known:
			p.cluster = append(p.cluster, "--"+flag+"="+value)
		case flag == "node":
			p.node = value
		case flag == "namespace":
			p.namespace = value
		default:
			p.of = value
		}
	}
	if n := len(slices.DeleteFunc([]string{p.node, p.of, map[bool]string{true: "all"}[p.all]}, func(s string) bool { return s == "" })); n > 1 {
		return nil, errors.New("--node, --of and --all-nodes: write one of them")
	}
	return args, nil
}

// choose returns the pods of the agents that are meant, by node.
func (p *plugin) choose(ctx context.Context) ([]agentPod, error) {
	if p.of != "" {
		namespace, name, ok := strings.Cut(p.of, "/")
		if !ok {
			namespace, name = "default", p.of
		}
		node, err := p.kubectl(ctx, "get", "pod", "--namespace="+namespace, "--output=jsonpath={.spec.nodeName}", "--", name)
		if err != nil {
			return nil, err
		}
		if p.node = node; node == "" {
			return nil, fmt.Errorf("pod %s/%s is on no node yet", namespace, name)
		}
	}
	pods, err := p.agents(ctx)
	if err != nil {
		return nil, err
	}
	var nodes []string
	slices.SortFunc(pods, func(a, b agentPod) int {
		return cmp.Or(cmp.Compare(a.node, b.node), cmp.Compare(phaseOrder(a), phaseOrder(b)), cmp.Compare(a.name, b.name))
	})
	pods = slices.CompactFunc(pods, func(a, b agentPod) bool { return a.node == b.node }) // an agent that ends beside one that begins
	for _, pod := range pods {
		nodes = append(nodes, pod.node)
	}
	i := slices.Index(nodes, p.node)
	switch {
	case len(pods) == 0:
		return nil, errors.New("the DaemonSet of the agents has no pod on a node")
	case p.all, p.node == "" && len(pods) == 1:
		return pods, nil
	case p.node == "":
		return nil, fmt.Errorf("which node? Write --node NAME, --of POD or --all-nodes; agents are on %s", some(nodes))
	case i < 0:
		return nil, fmt.Errorf("no agent is on node %q; agents are on %s", p.node, some(nodes))
	default:
		return pods[i : i+1], nil
	}
}

// agents returns the pods of the DaemonSets of agents. Others with the same label are left out,
// and named on stderr.
func (p *plugin) agents(ctx context.Context) (pods []agentPod, err error) {
	sets, err := p.daemonSets(ctx)
	if err != nil {
		return nil, err
	}
	lines, err := p.list(ctx, "pods", podFields)
	if err != nil {
		return nil, err
	}
	var strangers []string
	for _, f := range lines {
		node, namespace, name, phase, owner := f[0], f[1], f[2], f[3], f[4]
		switch {
		case !slices.ContainsFunc(sets, func(d daemonSet) bool { return d.namespace == namespace && d.uid == owner }):
			strangers = append(strangers, namespace+"/"+name)
		case node != "":
			pods = append(pods, agentPod{node, namespace, name, phase})
		}
	}
	if len(strangers) > 0 {
		fmt.Fprintf(p.stderr, "kubectl headgate: left out, since they have the label %s and are not of the DaemonSet %s: %s\n", selector, sets[0], some(strangers))
	}
	return pods, nil
}

// daemonSet is that of the agents.
type daemonSet struct{ namespace, name, uid string }

func (d daemonSet) String() string { return d.namespace + "/" + d.name }

// daemonSets finds the DaemonSets of the agents, which are in one namespace: each has the label,
// their account and the network of the node.
func (p *plugin) daemonSets(ctx context.Context) (sets []daemonSet, err error) {
	lines, err := p.list(ctx, "daemonsets", setFields)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, f := range lines {
		set := daemonSet{f[0], f[1], f[2]}
		if f[3] == "headgate" && f[4] == "true" && (p.namespace == "" || p.namespace == set.namespace) {
			sets, names = append(sets, set), append(names, set.String())
		}
	}
	const what = "DaemonSet with the label " + selector + ", the service account headgate and the node's network"
	switch {
	case len(sets) == 0 && p.namespace != "":
		return nil, fmt.Errorf("--namespace %s has no %s", p.namespace, what)
	case len(sets) == 0:
		return nil, errors.New("there is no " + what + ": is Headgate installed in this cluster?")
	case slices.ContainsFunc(sets, func(d daemonSet) bool { return d.namespace != sets[0].namespace }):
		return nil, fmt.Errorf("which agents? Write --namespace NAME; these look like theirs: %s", some(names))
	}
	return sets, nil
}

// What is asked of objects: five fields of each, as kubectl's jsonpath has them.
const (
	setFields = "{.metadata.namespace},{.metadata.name},{.metadata.uid},{.spec.template.spec.serviceAccountName},{.spec.template.spec.hostNetwork}"
	podFields = "{.spec.nodeName},{.metadata.namespace},{.metadata.name},{.status.phase},{.metadata.ownerReferences[?(@.controller==true)].uid}"
)

func eachOf(fields string) string { return `{range .items[*]}` + fields + `{"\n"}{end}` }

// list returns fields of all objects of a kind that have the label, five of each.
func (p *plugin) list(ctx context.Context, kind, fields string) (lines [][]string, err error) {
	text, err := p.kubectl(ctx, "get", kind, "--all-namespaces", "--selector="+selector, "--output=jsonpath="+eachOf(fields))
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(text) {
		if f := strings.Split(strings.TrimSpace(line), ","); len(f) == 5 {
			lines = append(lines, f)
		}
	}
	return lines, nil
}

// phaseOrder puts pods first that run.
func phaseOrder(p agentPod) int {
	if p.phase == "Running" {
		return 0
	}
	return 1
}

// some joins as many names as fit into a line.
func some(names []string) string {
	const most = 8
	if len(names) > most {
		return strings.Join(names[:most], ", ") + fmt.Sprintf(" and %d more", len(names)-most)
	}
	return strings.Join(names, ", ")
}

// container is that of the agent in its pod, as deploy/ names it.
const container = "agent"

// exec runs headgate in a pod and returns its exit code, which is kubectl's.
func (p *plugin) exec(ctx context.Context, pod agentPod, command []string) (int, error) {
	args := []string{"exec", "--namespace=" + pod.namespace, "--container=" + container}
	if isTerminal(p.stdin) && isTerminal(p.stdout) {
		args = append(args, "--stdin", "--tty")
	}
	cmd := p.command(ctx, append(append(args, pod.name, "--", "/headgate"), command...))
	cmd.Stdin, cmd.Stdout, cmd.Stderr = p.stdin, p.stdout, p.stderr
	var exit *exec.ExitError
	switch err := cmd.Run(); {
	case errors.As(err, &exit):
		return max(exit.ExitCode(), 1), nil // kubectl has said why
	default:
		return 0, err
	}
}

// kubectl returns what kubectl prints.
func (p *plugin) kubectl(ctx context.Context, args ...string) (string, error) {
	cmd := p.command(ctx, args)
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		lines := strings.Split(strings.TrimSpace(said.String()), "\n") // it may repeat an error, and ends with the plainest
		return "", fmt.Errorf("kubectl %s: %s", args[0], cmp.Or(lines[len(lines)-1], err.Error()))
	}
	return string(out), err
}

func (p *plugin) command(ctx context.Context, args []string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "kubectl", append(slices.Clone(p.cluster), args...)...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	return cmd
}

// isTerminal says whether a person is at the other end.
func isTerminal(of any) bool {
	f, ok := of.(*os.File)
	if !ok {
		return false
	}
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}
