package lb

import "cmp"

// Age says how old a Service is, as the API server does. Services that do not say
// it, such as those of files, are the youngest.
type Age struct {
	Created int64  // Unix time in seconds, 0 where unknown
	UID     string // tells Services of the same second apart, "" where unknown
}

// compare orders the older first.
func (a Age) compare(b Age) int {
	return cmp.Or(
		falseFirst(a.Created == 0, b.Created == 0),
		cmp.Compare(a.Created, b.Created),
		cmp.Compare(a.UID, b.UID),
	)
}

// Claim is a Service asking for a frontend. Of several claims the first in order
// has it: by kind (an address that the cluster assigns comes before one that
// somebody writes down), then by age, then by name. So who came first, a restart,
// and the node that asks make no difference. A NodePort claims its port on every
// address of the node where NodePorts answer.
type Claim struct {
	Service ServiceName
	Kind    FrontendKind
	Age     Age
}

// Compare orders claims, the better one first. It is 0 for those of one Service
// only, of the same kind and age.
func (c Claim) Compare(o Claim) int {
	return cmp.Or(cmp.Compare(c.Kind, o.Kind), c.Age.compare(o.Age), c.Service.Compare(o.Service))
}

// Over says why a claim is better than another, as the end of a sentence about its
// Service.
func (c Claim) Over(o Claim) string {
	switch {
	case c.Kind != o.Kind:
		return "as its " + c.Kind.String()
	case c.Age.compare(o.Age) != 0:
		return "and is older"
	default:
		return "and comes first by name"
	}
}
