package programs

import (
	"context"
	"os"
	"testing"

	"github.com/headgate/headgate/pkg/lb"
)

// program is a server behind a Service and a client that uses it.
type program struct {
	name  string
	needs []string // to be found on the PATH
	port  uint16
	// outside is where the server listens for clients of the NodePort, 0 for the same port.
	outside uint16
	serve   func(r *rig)
	// before and after do something to the node before each proxy starts, and once it balances; nil for nothing.
	// What they attach to devices goes with the proxy.
	before, after func(r *rig)
	// tcxOnly leaves out the agent with --filters: docs/paths.md says that tcx programs hide packets from filters.
	tcxOnly bool
	// ask succeeds if the client can use the server.
	ask func(c *client) error
}

var all = []program{socketActivation, ssh, rabbitMQ, kafka, haproxy, tcxMarks, tcxPasses, tcxPassesLast, shaped, policed}

func TestPrograms(t *testing.T) {
	compare(t, setting{"node-a", lb.TCP, ipv4, paths, proxies}, all...)
}

func TestLoggers(t *testing.T) {
	needsPrograms(t)
	for _, f := range []family{ipv4, ipv6} {
		t.Run(f.name, func(t *testing.T) { compareLogs(t, setting{"node-a", lb.UDP, f, paths, proxies}) })
	}
}

// needsPrograms skips a test that does not have the programs of Debian.
func needsPrograms(t *testing.T) {
	t.Helper()
	if _, given := os.LookupEnv(unpacked); !given {
		t.Skipf("only with %s: make programs-test", unpacked)
	}
	needs(t, "nft")
}

// compare has programs talk in a setting.
func compare(t *testing.T, s setting, programs ...program) {
	t.Helper()
	needsPrograms(t)
	for _, p := range programs {
		t.Run(p.name, func(t *testing.T) {
			needs(t, p.needs...)
			p.compare(t, s)
		})
	}
}

// compare has all proxies balance, one after the other: where the rules pass, others have to.
func (p program) compare(t *testing.T, s setting) {
	r := newRig(t, s, p.port, p.outside)
	p.serve(r)
	passes := map[string]bool{} // by the rules
	for _, x := range s.proxies {
		if p.tcxOnly && x.name == byFilters {
			continue
		}
		if p.before != nil {
			p.before(r)
		}
		r.proxy = x.start(r)
		if err := r.proxy.balance(r.backend); err != nil {
			t.Fatalf("%s: %v", x.name, err)
		}
		if p.after != nil {
			p.after(r)
		}
		for _, way := range s.paths {
			if x.name != kubeProxy && !passes[way.name] {
				continue
			}
			switch err := p.askOnce(r, way); {
			case err == nil:
				t.Logf("%s, %s: passes", x.name, way.name)
				passes[way.name] = true
			case x.name == kubeProxy:
				t.Errorf("%s, %s: fails, so there is nothing to compare with: %v", x.name, way.name, err)
			default:
				t.Errorf("%s, %s: FAILS, BUT PASSES BY %s: %v", x.name, way.name, kubeProxy, err)
			}
			if p.askBy(r, way, true) == nil {
				t.Errorf("%s, %s: the client succeeds where nothing listens: it shows nothing", x.name, way.name)
			}
		}
		r.proxy.stop()
		r.detach()
	}
}

// askBy has a client ask by a path: the Service, or the one that is closed.
func (p program) askBy(r *rig, way path, closed bool) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return p.ask(&client{rig: r, path: way, at: r.at(way, closed), ctx: ctx})
}
