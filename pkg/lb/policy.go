package lb

import (
	"cmp"
	"fmt"
	"strings"
	"time"
)

// Policy is what a Service asks of its balancing. Its frontends have it too; what it
// leaves open the configuration of the agent decides (Or).
type Policy struct {
	Algorithm Algorithm
	// TableSize is the slots of a table for hashes, a prime; 0 is chosen by the
	// number of backends.
	TableSize uint32
	Zones     ZonePolicy
	// Forwarding is how packets get to backends on other nodes.
	Forwarding Forwarding
	// Outside says that endpoints without a node are homes of their own: what is carried goes
	// to their addresses, and they take the outer header off. It is no Service's to say.
	Outside bool
	// DrainTime is how long what is connected to a backend may go on after the
	// backend has left the Service; 0 ends it at once.
	DrainTime time.Duration
	// Probe is how backends are asked, the zero value for not at all.
	Probe Probe
	Steering
}

// Steering is the part of a policy that the datapath applies to each connection. It
// stands in the maps, beside the tables.
type Steering struct {
	AffinityTimeout uint32 // seconds that a client stays with its backend; 0: no session affinity
	// PassiveHealth says whether ejected backends are avoided: backends that did not take
	// several connections in a row.
	PassiveHealth Switch
	// SlowStart is for how many seconds a backend that is new or has come back
	// gets fewer connections than the others; 0 is not at all.
	SlowStart uint32
	// CloseUDP says that connected UDP sockets are closed when their backend leaves the Service,
	// instead of getting another one.
	CloseUDP bool
	// Spill is how many of 2^32 connections use the view FallbackAll at once. It
	// follows from Zones and the endpoints: no Service says it.
	Spill uint32
}

// Switch is what may be said on or off, or left to the configuration.
type Switch uint8

// The positions of a Switch.
const (
	SwitchDefault Switch = iota
	SwitchOn
	SwitchOff
)

// SwitchTo returns the position for on or off.
func SwitchTo(on bool) Switch {
	if on {
		return SwitchOn
	}
	return SwitchOff
}

// Or returns the policy with what it leaves open as others have it. To ask for probes
// is to say that ejected backends are avoided.
func (p Policy) Or(others Policy) Policy {
	if p.Probe.Kind != NoProbe {
		p.PassiveHealth = cmp.Or(p.PassiveHealth, SwitchOn)
	}
	p.PassiveHealth = cmp.Or(p.PassiveHealth, others.PassiveHealth)
	p.Algorithm = cmp.Or(p.Algorithm, others.Algorithm)
	return p
}

// Words returns what is not as usual, such as "affinity 600s slow-start 30s", where
// nothing is left open.
func (s Steering) Words() string {
	var words []string
	if s.AffinityTimeout > 0 {
		words = append(words, fmt.Sprintf("affinity %ds", s.AffinityTimeout))
	}
	if s.PassiveHealth != SwitchOn {
		words = append(words, "passive-health off")
	}
	if s.SlowStart > 0 {
		words = append(words, fmt.Sprintf("slow-start %ds", s.SlowStart))
	}
	if s.CloseUDP {
		words = append(words, "udp-close on")
	}
	if s.Spill > 0 {
		words = append(words, fmt.Sprintf("spill %.0f%%", 100*float64(s.Spill)/(1<<32)))
	}
	return strings.Join(words, " ")
}

// withPolicy returns a Service of which an annotation cannot be used with what was
// in force of all; the Service itself where all can be, or nothing was.
func (s *Service) withPolicy(old *Service) *Service {
	if !s.KeepPolicy || old == nil {
		return s
	}
	out := *s
	out.Policy, out.Weights = old.Policy, old.Weights
	out.AffinityTimeout = s.AffinityTimeout // which is no annotation
	return &out
}
