package lb

import (
	"fmt"
	"net/netip"
)

// Algorithm says how a client gets one of the backends of a frontend.
type Algorithm uint8

// The algorithms. Those of IPVS (rr to nq) are as it defines them.
const (
	AlgorithmDefault Algorithm = iota // what the agent's configuration says
	Random                            // any, by weight
	RR                                // one after the other
	WRR                               // the same, by weight
	Maglev                            // by a hash of the flow (Maglev, NSDI 2016)
	Stable                            // the same, with fewer flows that move
	SH                                // by a hash of the client's address
	DH                                // by a hash of the frontend's address
	LC                                // that with the fewest connections
	WLC                               // the same, by weight
	SED                               // shortest expected delay
	NQ                                // an idle one, otherwise as SED
	P2C                               // the better of two random ones, by connections
	Latency                           // the better of two, by response time × connections
)

// algorithmNames are the names of algorithms, in order.
var algorithmNames = [...]string{"", "random", "rr", "wrr", "maglev", "stable", "sh", "dh", "lc", "wlc", "sed", "nq", "p2c", "latency"}

// String returns the name that annotations and the configuration use, "" for
// AlgorithmDefault.
func (a Algorithm) String() string {
	if int(a) < len(algorithmNames) {
		return algorithmNames[a]
	}
	return fmt.Sprintf("algorithm-%d", uint8(a))
}

// Algorithms returns the names of all algorithms.
func Algorithms() []string {
	return append([]string{}, algorithmNames[1:]...)
}

// ParseAlgorithm returns the algorithm of a name; false if none has it.
func ParseAlgorithm(name string) (Algorithm, bool) {
	for a := Random; int(a) < len(algorithmNames); a++ {
		if name == algorithmNames[a] {
			return a, true
		}
	}
	return AlgorithmDefault, false
}

// Hashed says whether the algorithm looks into a table that is filled so that
// few slots change when a backend comes or goes.
func (a Algorithm) Hashed() bool {
	return a == Maglev || a == Stable || a == SH || a == DH
}

// Compares says whether the algorithm goes by what is measured of backends.
func (a Algorithm) Compares() bool { return a >= LC }

// Weights as they may be given to an endpoint. An endpoint of which nothing is
// said has DefaultWeight, one of weight 0 gets no new connections.
const (
	DefaultWeight = 1
	MaxWeight     = 65535
)

// Limits of the slots of a table for hashes that a Service may ask for.
const (
	MinTableSize = 3
	MaxTableSize = 655373
)

// EndpointWeight is the weight that a Service gives to its endpoints at an
// address. 0 gives them no new connections.
type EndpointWeight struct {
	Addr   netip.Addr
	Weight uint32
}
