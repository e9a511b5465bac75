package contender

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/headgate/headgate/pkg/traffic"
	"github.com/headgate/headgate/pkg/traffic/rules"
)

// balance brings up what stands between client and servers.
func (p *Contender) balance(ctx context.Context) error {
	local := netsOf(p.Spec.IPv6).pods
	switch p.Spec.Name {
	case Direct:
		return nil
	case HeadgateSocket, HeadgateTC:
		return p.startAgent()
	case IPTables:
		return p.feed(ctx, rules.IPTables(ruled(p.services), local), p.iptablesRestore())
	case NFTables:
		return p.feedAll(ctx, rules.NFTables(ruled(p.services), local), "nft", "-f", "-")
	case KubeProxyIPTables:
		return p.startKubeProxy("iptables")
	case KubeProxyNFTables:
		return p.startKubeProxy("nftables")
	}
	return p.hook(ctx)
}

// iptablesRestore is the program for rules of the contender's family.
func (p *Contender) iptablesRestore() string {
	if p.Spec.IPv6 {
		return "ip6tables-restore"
	}
	return "iptables-restore"
}

// feedAll gives a program of the node one input after the other.
func (p *Contender) feedAll(ctx context.Context, inputs []string, program string, args ...string) error {
	for _, input := range inputs {
		if err := p.feed(ctx, input, program, args...); err != nil {
			return err
		}
	}
	return nil
}

// feed gives a program of the node its input.
func (p *Contender) feed(ctx context.Context, input, program string, args ...string) error {
	cmd := exec.CommandContext(ctx, program, args...)
	var output bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(input), &output, &output
	err := p.site.Topology.Namespace(p.node).Start(cmd)
	if err == nil {
		err = cmd.Wait()
	}
	if err != nil {
		text := output.String()
		return fmt.Errorf("%s: %w: %s", program, err, text[:min(len(text), 500)])
	}
	return nil
}

// startAgent starts Headgate on the node. For clients on the node their cgroup is
// its own; for those from elsewhere it is at their device.
func (p *Contender) startAgent() error {
	if err := p.writeManifests(); err != nil {
		return err
	}
	if err := traffic.MountBPF(filepath.Join(p.dir, "bpf")); err != nil {
		return err
	}
	_, device := p.site.Topology.NextToClient()
	cgroup := p.cgroup.Path
	if p.Spec.Name == HeadgateTC { // the client's sockets are not to be met
		other, err := traffic.NewCgroup(p.Spec.CgroupTop, p.Spec.RunName+"-none")
		if err != nil {
			return err
		}
		p.undo = append(p.undo, other.Close)
		cgroup = other.Path
	}
	p.bpfRoot = filepath.Join(p.dir, "bpf", "headgate")
	return p.startProcess(p.Spec.Headgate, "agent", "--manifests", filepath.Join(p.dir, "manifests"), "--node-name", p.node,
		"--cgroup", cgroup, "--bpf-root", p.bpfRoot, "--state-dir", filepath.Join(p.dir, "state"), "--devices", device)
}

// startProcess starts a load balancer's process on the node, which ends with the
// contender. What it says goes to a file.
func (p *Contender) startProcess(program string, args ...string) error {
	p.process = &process{name: filepath.Base(program), start: func() (*exec.Cmd, error) {
		log, err := os.OpenFile(filepath.Join(p.dir, processLog), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			return nil, err
		}
		defer log.Close()
		cmd := exec.Command(program, args...)
		cmd.Stdout, cmd.Stderr = log, log
		return cmd, p.site.Topology.Namespace(p.node).Start(cmd)
	}}
	p.undo = append(p.undo, p.process.end)
	return p.process.begin()
}

// processLog is what the load balancer's process says, in the contender's folder.
const processLog = "process.log"

// processText is the end of what the load balancer's process says, "" without one.
func (p *Contender) processText() string {
	text, err := os.ReadFile(filepath.Join(p.dir, processLog))
	if err != nil {
		return ""
	}
	const most = 1000
	return "; its process says: " + string(text[max(0, len(text)-most):])
}

// hook runs the command that brings a load balancer up.
func (p *Contender) hook(ctx context.Context) error {
	if err := p.writeServices(nil); err != nil {
		return err
	}
	if p.Spec.Hook.Teardown != "" {
		p.undo = append(p.undo, func() error {
			limit, cancel := context.WithTimeout(context.Background(), 30*time.Second)
			defer cancel()
			return p.command(limit, p.Spec.Hook.Teardown)
		})
	}
	return p.command(ctx, p.Spec.Hook.Setup)
}

func (p *Contender) command(ctx context.Context, text string) error {
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", text)
	cmd.Env = p.Environment()
	if output, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("command %q: %w: %s", text, err, bytes.TrimSpace(output))
	}
	return nil
}
