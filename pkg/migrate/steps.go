package migrate

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/pkg/datapath"
	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/netdev"
	"github.com/headgate/headgate/pkg/preflight"
)

// step is one of a way. It is done or not by what the node shows now, whoever did it.
type step struct {
	name string
	// done says whether, and what was found.
	done func(Status, Options) (bool, string)
	// may says whether it may be done now, nil for always.
	may func(Status, Options) bool
	// act does it, nil for what is not ours to do. It returns what it did.
	act func(context.Context, Config) (string, error)
	// todo is what act would do, or what others have to do.
	todo string
}

// forth is the way from kube-proxy to Headgate. The order is what loses nothing:
//   - Datagram sockets are told while kube-proxy still moves them, and Headgate gives what
//     they become a backend: none is ever without anybody.
//   - Translation is kept before the rules go, since the kernel ends it with the last one
//     that needs it, in each family: also where chains of iptables stay, which are empty.
var forth = []step{
	{
		name: "headgate-serves",
		done: func(s Status, _ Options) (bool, string) {
			if s.Agent == "" && !s.Loaded {
				return false, "an agent serves, and nothing is loaded below --bpf-root"
			}
			return s.Agent == "", orElse(s.Agent, "the agent serves")
		},
		todo: "install Headgate on this node and wait until its pod is ready",
	},
	{
		name: "sockets-told",
		done: func(s Status, o Options) (bool, string) {
			n := s.countSockets(lb.UDP)
			return n == 0 || o.LeaveSockets, plural(n, "connected UDP socket goes", "connected UDP sockets go") + " through kube-proxy's rules"
		},
		act: tell, todo: "have the kernel tell these sockets (ECONNABORTED): their programs make new ones, which Headgate balances",
	},
	{
		name: "translation-kept",
		done: func(s Status, _ Options) (bool, string) {
			switch {
			case s.KeepsNAT:
				return true, "table inet " + netdev.NATTable + " keeps it"
			case len(s.Rules) == 0:
				return true, "there are no rules of kube-proxy"
			default: // others may translate, too, and not in both families; nor need they track
				return false, "the kernel may end translation with kube-proxy's rules"
			}
		},
		act: func(context.Context, Config) (string, error) {
			return "made table inet " + netdev.NATTable, netdev.KeepNAT()
		},
		todo: "make table inet " + netdev.NATTable + ", whose one rule does nothing",
	},
	{
		name: "kube-proxy-ended", done: func(s Status, _ Options) (bool, string) { return !s.KubeProxy.Runs, s.KubeProxy.String() },
		todo: "label the node (kubectl label node NODE headgate.dev/kube-proxy=replaced) where the DaemonSet kube-proxy stays away from such nodes, see docs/migrate.md; of a static pod or a unit of systemd, remove the file or disable the unit",
	},
	{
		name: "ports-taken",
		done: func(s Status, _ Options) (bool, string) {
			others := notOf(preflight.HeadgateName, s.Ports)
			return len(others) == 0, orElse(strings.Join(others, ", "), "the agent answers on all "+fmt.Sprint(len(s.Ports)))
		},
		todo: "the agent takes each within a second once it is free: end who holds it; where the agent has others, name them with --healthz-bind-address and --metrics-bind-address",
	},
	{
		name: "rules-removed",
		done: func(s Status, _ Options) (bool, string) {
			var words []string
			for _, r := range s.Rules {
				words = append(words, r.String())
				if r.KeepConnections() {
					words = append(words, connectionsLeft(s)+" end with it, which table inet "+netdev.NATTable+" does not keep")
				}
			}
			return len(s.Rules) == 0, orElse(strings.Join(words, "; "), "kube-proxy's rules are gone")
		},
		todo: "run kube-proxy --cleanup from the same image, privileged and in the node's network, see docs/migrate.md",
	},
	{
		name: "connections-ended",
		done: connectionsEnded,
		may: func(s Status, o Options) bool {
			return o.EndConnections || s.Connections[lb.TCP.String()] == 0 || s.keptTooLong(o, time.Now())
		},
		act:  letGo,
		todo: "wait until these connections have ended, or end them with --end-connections; they work meanwhile",
	},
}

// connectionsEnded says whether no connection is kept any more.
func connectionsEnded(s Status, o Options) (bool, string) {
	left := s.Connections[lb.TCP.String()]
	switch {
	case !s.KeepsNAT && left > 0:
		return true, connectionsLeft(s) + ", which table inet " + netdev.NATTable + " does not keep: they go on only where others translate addresses"
	case s.KeepsNAT && o.KeepConnections > 0 && !s.NATSince.IsZero():
		return false, connectionsLeft(s) + ", which the kernel goes on with, until " + s.NATSince.Add(o.KeepConnections).UTC().Format(time.RFC3339) + " at most"
	default:
		return !s.KeepsNAT, connectionsLeft(s) + ", which the kernel goes on with"
	}
}

// keptTooLong says whether connections of kube-proxy's time have had the time that they were given.
func (s Status) keptTooLong(o Options, now time.Time) bool {
	return o.KeepConnections > 0 && !s.NATSince.IsZero() && now.Sub(s.NATSince) > o.KeepConnections
}

// connectionsLeft says how many connections the kernel translates.
func connectionsLeft(s Status) string {
	return plural(s.Connections[lb.TCP.String()], "TCP connection", "TCP connections") + " of kube-proxy's time"
}

func tell(_ context.Context, cfg Config) (said string, err error) {
	err = datapath.Look(func() (*datapath.Reader, error) { return datapath.Inspect(cfg.Root) }, func(r *datapath.Reader) error {
		told, err := r.TellUntranslated()
		said = "told " + plural(told, "connected UDP socket", "connected UDP sockets")
		return err
	})
	return said, err
}

// back is the way from Headgate to kube-proxy. A kube-proxy that starts while an agent has its
// ports does not try those of health checks again, so the agent ends first; what it brought
// into the kernel serves on until kube-proxy's rules are there.
var back = []step{
	{
		name: "agent-ended", done: func(s Status, _ Options) (bool, string) {
			if s.AgentRuns {
				return false, "an agent runs here"
			}
			return true, "no agent runs here"
		},
		todo: "take Headgate's pod from this node (kubectl label node NODE headgate.dev/agent=away), or end its unit; its programs serve on",
	},
	{
		name: "kube-proxy-serves", done: kubeProxyServes,
		todo: "bring kube-proxy back (kubectl label node NODE headgate.dev/kube-proxy-), see docs/migrate.md; where one serves that is not found, name its --metrics-bind-address and --healthz-bind-address, or remove Headgate without it: headgate cleanup",
	},
	{
		name: "headgate-removed", done: func(s Status, _ Options) (bool, string) {
			if s.Loaded {
				return false, "programs of Headgate are in force"
			}
			return true, "nothing of Headgate is in the kernel"
		},
		act: remove, todo: "hand connections of clients outside over to the kernel, tell connected UDP sockets that have a backend or wait for one, and take the programs out of force, as headgate cleanup does",
	},
	{
		name: "translation-left", done: func(s Status, _ Options) (bool, string) {
			if s.KeepsNAT {
				return false, "table inet " + netdev.NATTable + " is not needed beside kube-proxy's rules"
			}
			return true, "translation is kube-proxy's"
		},
		act: func(context.Context, Config) (string, error) {
			return "removed table inet " + netdev.NATTable, netdev.DropNAT()
		},
		todo: "remove table inet " + netdev.NATTable,
	},
}

// kubeProxyServes says whether a kube-proxy runs, has written its rules, and answers.
func kubeProxyServes(s Status, _ Options) (bool, string) {
	kept := false
	for _, r := range s.Rules {
		kept = kept || r.Stale == ""
	}
	switch {
	case !s.KubeProxy.Runs:
		return false, s.KubeProxy.String()
	case !kept:
		return false, s.KubeProxy.String() + ", and has written no rules yet"
	case s.Healthz != "":
		return false, s.KubeProxy.String() + ", and " + s.Healthz
	case !s.familiesNamed && s.familyWithoutRules() != "":
		return false, s.KubeProxy.String() + ", and has written no rules of " + s.familyWithoutRules() + " yet"
	default:
		return true, s.KubeProxy.String() + ", and has written its rules"
	}
}

// familyWithoutRules returns a family of Services with backends of which kube-proxy has no
// chains, "" for none.
func (s Status) familyWithoutRules() string {
	for _, family := range slices.Sorted(maps.Keys(s.families)) {
		if !slices.ContainsFunc(s.Rules, func(r preflight.Rules) bool { return r.Stale == "" && r.Has(family) }) {
			return family
		}
	}
	return ""
}

func remove(_ context.Context, cfg Config) (string, error) {
	done, err := Remove(cfg.Root)
	return "removed Headgate; " + strings.Join(Said(done), "; "), err
}

func letGo(context.Context, Config) (string, error) {
	return "removed table inet " + netdev.NATTable, netdev.DropNAT()
}

// notOf returns the ports that a program does not hold.
func notOf(program string, ports []preflight.Port) (words []string) {
	for _, p := range ports {
		if !p.Is(program) {
			words = append(words, p.String())
		}
	}
	return words
}

func orElse(text, otherwise string) string {
	if text == "" {
		return otherwise
	}
	return text
}

func plural(n int, one, more string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, more)
}
