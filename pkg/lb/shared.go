package lb

import (
	"strings"
	"unique"
)

// Topology is where an endpoint is, and which clients it is meant for.
type Topology struct {
	Node      string // "" where unknown: never local
	Zone      string // "" where unknown: in no zone
	ZoneHints Names
	NodeHints Names
}

// Names are names of zones or nodes with commas between them, which no name has.
type Names string

// has says whether a name is among them.
func (n Names) has(name string) bool {
	for one := range strings.SplitSeq(string(n), ",") {
		if one == name {
			return true
		}
	}
	return false
}

// Shared is a Topology of which there is one copy for all endpoints that are alike in it,
// such as those on a node: it takes 8 bytes of an endpoint in place of 88.
type Shared struct{ handle unique.Handle[Topology] }

// Share returns what stands for a Topology. The zero Shared is the zero Topology.
func (t Topology) Share() Shared {
	if t == (Topology{}) {
		return Shared{}
	}
	return Shared{unique.Make(t)}
}

// Topology returns what was shared.
func (s Shared) Topology() Topology {
	if s == (Shared{}) {
		return Topology{}
	}
	return s.handle.Value()
}

// Equal says whether both are the same. Comparing them does, too; go-cmp asks for it.
func (s Shared) Equal(o Shared) bool { return s == o }
