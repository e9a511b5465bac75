package scenario

import (
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/headgate/headgate/pkg/plan"
)

// nodeKey is where a script has its node.
type nodeKey struct{}

// commands are what scripts are made of, besides those of testscript. None can
// be negated.
var commands = map[string]func(*testscript.TestScript, bool, []string){
	// start [DIR] [LIMIT=N...] starts an agent on a directory of YAML, as before
	// where nothing is said. LIMIT is frontends, slots, backends or services;
	// "room" sets how much room the maps have at first, "probes" whether they are
	// allowed or denied, "forwarding" whether a Service may ask for DSR (marked) or not.
	"start": command(func(n *node, args []string) (string, error) {
		for _, arg := range args {
			if err := n.set(arg); err != nil {
				return "", err
			}
		}
		return "", n.start()
	}),
	// halt ends the agent.
	"halt": command(func(n *node, _ []string) (string, error) { n.stop(); return "", nil }),
	// restart ends the agent and starts another: which is to write nothing, and to
	// leave the maps as they are.
	"restart": command(func(n *node, _ []string) (string, error) { return "", n.restart() }),
	// sync returns when all that was saved is in force.
	"sync": command(func(n *node, _ []string) (string, error) { return "", n.sync() }),
	// dump prints what the maps hold.
	"dump": command(func(n *node, _ []string) (string, error) { return n.dump() }),
	// ops prints the operations done since it was last asked.
	"ops": command(func(n *node, _ []string) (string, error) {
		return strings.Join(append(n.dp.done(), ""), "\n"), nil
	}),
	// losses prints whose sockets were told that their backend is gone, since it
	// was last asked.
	"losses": command(func(n *node, _ []string) (string, error) {
		return strings.Join(append(n.dp.toldLosses(), ""), "\n"), nil
	}),
	// problems prints the problems that are reported and not solved.
	"problems": command(func(n *node, _ []string) (string, error) {
		return strings.Join(append(n.problems(), ""), "\n"), nil
	}),
	// addresses ADDRESS... says which addresses are the node's own.
	"addresses": command(func(n *node, args []string) (string, error) {
		n.addresses = map[netip.Addr]plan.AddressKind{}
		for _, arg := range args {
			a, err := netip.ParseAddr(arg)
			if err != nil {
				return "", err
			}
			n.addresses[a] = plan.NodeAddress
			if a.IsLoopback() {
				n.addresses[a] = plan.LoopbackAddress
			}
		}
		if n.reconciler != nil {
			n.inbox.SetNodeAddresses(n.addresses)
		}
		return "", nil
	}),
	// crash N lets nothing work any more after N further operations.
	"crash": command(func(n *node, args []string) (string, error) {
		after, err := strconv.Atoi(args[0])
		n.dp.crashAfter(after)
		return "", err
	}),
	// save SOURCE FILE saves a file in one step, as editors do.
	"save": func(ts *testscript.TestScript, _ bool, args []string) { save(ts, ts.ReadFile(args[0]), args[1]) },
	// prefixes N SOURCE FILE saves a file that has N prefixes where the source has
	// the word PREFIXES.
	"prefixes": func(ts *testscript.TestScript, _ bool, args []string) {
		n, err := strconv.Atoi(args[0])
		ts.Check(err)
		all := make([]string, n)
		for i := range all {
			all[i] = fmt.Sprintf("198.18.%d.%d/32", i>>8, i&0xff)
		}
		save(ts, strings.ReplaceAll(ts.ReadFile(args[1]), "PREFIXES", strings.Join(all, ", ")), args[2])
	},
}

func save(ts *testscript.TestScript, text, file string) {
	part := ts.MkAbs(file + ".part")
	ts.Check(os.WriteFile(part, []byte(text), 0o600))
	ts.Check(os.Rename(part, ts.MkAbs(file)))
}

// command makes a command of what it does to the node and prints.
func command(do func(n *node, args []string) (string, error)) func(*testscript.TestScript, bool, []string) {
	return func(ts *testscript.TestScript, neg bool, args []string) {
		if neg {
			ts.Fatalf("this command cannot be negated")
		}
		out, err := do(ts.Value(nodeKey{}).(*node), args)
		ts.Check(err)
		fmt.Fprint(ts.Stdout(), out)
	}
}

// set takes an argument of start.
func (n *node) set(arg string) error {
	name, value, ok := strings.Cut(arg, "=")
	if !ok {
		n.dir = arg
		return nil
	}
	if name == "forwarding" {
		n.convert.DSR = value == "marked"
		return nil
	}
	if name == "probes" {
		n.convert.Probes = value == "allow"
		return nil
	}
	number, err := strconv.ParseUint(value, 10, 32)
	if err != nil {
		return err
	}
	v := uint32(number)
	switch name {
	case "frontends":
		n.limits.Frontends = v
	case "slots":
		n.limits.Slots = v
	case "backends":
		n.limits.Backends = v
	case "services":
		n.limits.Services = v
	case "room":
		n.sizes = plan.Sizes{Frontends: v, Slots: v, Backends: v, Services: v, Addresses: v}
	default:
		return fmt.Errorf("start has no %s", name)
	}
	return nil
}
