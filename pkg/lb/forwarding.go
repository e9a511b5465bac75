package lb

import "slices"

// Forwarding says how packets of clients elsewhere get to a backend on another node.
type Forwarding uint8

// The ways of forwarding.
const (
	ForwardingDefault Forwarding = iota // what the agent's configuration says
	SNAT                                // from an address of this node, so that answers come back here
	DSR                                 // unchanged, carried to the node of the backend, which answers itself
)

// forwardingNames are the names of ways of forwarding, in order.
var forwardingNames = [...]string{"", "snat", "dsr"}

// String returns the name that annotations and the configuration use, "" for
// ForwardingDefault.
func (f Forwarding) String() string { return forwardingNames[f] }

// Forwardings returns the names of all ways of forwarding.
func Forwardings() []string { return slices.Clone(forwardingNames[SNAT:]) }

// ParseForwarding returns the way of forwarding of a name; false if none has it.
func ParseForwarding(name string) (Forwarding, bool) {
	i := slices.Index(forwardingNames[SNAT:], name)
	return Forwarding(i + 1), i >= 0
}

// Carries says whether the frontends of a kind that a Service port has are carried: the
// packets of clients elsewhere reach the home of a backend, the node where it runs, as they
// are. A NodePort is an address of one node, policy Local leaves nothing to carry, and where
// no hash chooses nodes do not choose alike.
func (s *Service) Carries(kind FrontendKind, p Protocol) bool {
	if s.Forwarding != DSR || !s.Algorithm.carries() || p != TCP && p != UDP {
		return false
	}
	switch kind {
	case ClusterIP:
		return s.InternalPolicy == PolicyCluster
	case NodePort:
		return false
	default:
		return s.ExternalPolicy == PolicyCluster
	}
}

// carries says whether a Service that names the algorithm may be carried.
func (a Algorithm) carries() bool { return a == AlgorithmDefault || a.Hashed() }

// carry has a frontend carried: its external view is what every node chooses alike from. With
// session affinity a client elsewhere is a hash of its address rather than what one node
// remembers; one on this node is remembered here.
func (f *Frontend) carry(s selection) {
	f.Carried = true
	if f.Views[External] = s.everywhere; len(s.everywhere.Backends) == 0 {
		f.Views[External].Why = s.whyNone()
	}
	if f.Algorithm == AlgorithmDefault {
		f.Algorithm = Stable
	}
	if f.AffinityTimeout > 0 {
		f.ExternalAlgorithm = SH
	}
	f.Homes = s.homes
	// Answers of a backend outside are not seen here, so that only probes know how it is.
	if f.Probe.Kind == NoProbe && f.hasOutside() {
		f.PassiveHealth = SwitchOff
	}
}

// hasOutside says whether a member of a carried frontend is its own home.
func (f *Frontend) hasOutside() bool {
	for b, home := range f.Homes {
		if isOutside(b, home) {
			return true
		}
	}
	return false
}

// selectEverywhere selects the endpoints for clients of carried frontends: hints, zone
// policies and this node make no difference.
func (s *selection) selectEverywhere(from []candidate, c counts) {
	rule, why := allReady, WhyEverywhere
	if c.ready == 0 {
		rule, why = allDraining, WhyTerminating
	}
	backends := c.list(from, rule, Node{})
	if slices.Equal(backends, s.cluster) {
		backends = s.cluster // equal content, one slice
	}
	s.everywhere = View{Backends: backends, Weights: weightsOf(backends, from), Why: why}
}

// homesOf returns the names of the nodes where backends run, as far as they are known: where a
// backend without a node may be its own home, its address is the name.
func homesOf(candidates []candidate, outside bool) map[AddrPort]string {
	homes := make(map[AddrPort]string, len(candidates))
	for _, c := range candidates {
		if node := c.endpoint.Where.Topology().Node; node != "" {
			homes[c.backend] = node
		} else if outside {
			homes[c.backend] = c.backend.Addr.String()
		}
	}
	return homes
}
