package lb

import (
	"cmp"
	"slices"
	"time"
)

// ProbeKind is how backends are asked whether they are well.
type ProbeKind uint8

// The kinds of probes.
const (
	NoProbe   ProbeKind = iota
	TCPProbe            // they take a connection
	HTTPProbe           // they answer GET with a status from 200 to 399
)

// Probe is how the backends of a Service are asked, by every node for itself.
type Probe struct {
	Kind     ProbeKind
	Path     string // of HTTP, with a slash at its start
	Port     uint16 // host order; 0 is that of the backend
	Interval time.Duration
}

// Suits says whether a backend can be asked: datagrams have nobody who takes
// connections, unless a port is said where somebody does.
func (p Probe) Suits(backend AddrPort) bool {
	return p.Kind != NoProbe && (backend.Protocol == TCP || p.Port != 0)
}

// Way is how packets of clients get to a backend outside: unchanged, for the frontend.
type Way struct{ Frontend, Backend AddrPort }

func (w Way) compare(o Way) int {
	return cmp.Or(w.Frontend.Compare(o.Frontend), w.Backend.Compare(o.Backend))
}

// ProbedWays returns the ways to those of the backends outside that are probed, of TCP, sorted. A ClusterIP is none that
// backends outside would have.
func ProbedWays(frontends []Frontend) (ways []Way) {
	for _, f := range frontends {
		if !f.Carried || f.Kind == ClusterIP || f.Protocol != TCP {
			continue
		}
		for b, home := range f.Homes {
			if isOutside(b, home) && b.Port == f.AddrPort.Port && f.Probe.Suits(b) {
				ways = append(ways, Way{f.AddrPort, b})
			}
		}
	}
	slices.SortFunc(ways, Way.compare)
	return ways
}

// Outside returns the members of carried frontends that are outside, where no agent runs.
func Outside(frontends []Frontend) map[AddrPort]bool {
	all := map[AddrPort]bool{}
	for _, f := range frontends {
		for b, home := range f.Homes {
			if f.Carried && isOutside(b, home) {
				all[b] = true
			}
		}
	}
	return all
}

// isOutside says whether a backend with a home is its own.
func isOutside(b AddrPort, home string) bool { return home == b.Addr.String() }

// Probed returns the backends of frontends with the probe that their Service asks
// for, sorted; none where it asks for none.
func Probed(frontends []Frontend) (p Probe, backends []AddrPort) {
	for _, f := range frontends {
		p = f.Probe
		for _, v := range f.Views {
			for _, b := range v.Backends {
				if p.Suits(b) {
					backends = append(backends, b)
				}
			}
		}
	}
	slices.SortFunc(backends, AddrPort.Compare)
	return p, slices.Compact(backends)
}
