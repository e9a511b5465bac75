package traffic

import (
	"net/netip"
	"time"
)

// Kind is what a client does with a target.
type Kind string

// The kinds of exchanges. Each checks that the application sees the target as
// its peer, whatever happened to the address below it.
const (
	// TCP connects, reads the name of the server until it closes, closes.
	TCP Kind = "tcp"
	// UDPConnected connects a socket, sends one datagram, reads the answer.
	UDPConnected Kind = "udp-connected"
	// UDPUnconnected sends Job.PerSocket datagrams, one after the other,
	// from a socket that is never connected.
	UDPUnconnected Kind = "udp-unconnected"
	// Connect times connect() of TCP and resets the connection.
	Connect Kind = "connect"
)

// Job is closed-loop traffic: each worker starts the next exchange when it has
// finished one.
type Job struct {
	Kind      Kind
	Targets   []netip.AddrPort // used in turn
	Count     int              // exchanges in all, 0 means until cancelled
	Rate      int              // exchanges a second in all, 0 means no limit
	Workers   int              // 0 means 1
	PerSocket int              // for UDPUnconnected, 0 means 1
	WarmUp    int              // first exchanges that are not counted or timed
	Timeout   time.Duration    // of each step of an exchange, 0 means a second
}

// Result is what came of a Job.
type Result struct {
	Tallies []Tally // in the order of Job.Targets
	Nanos   []int64 // for Connect: what each connect() took
}

// Tally is what came of the exchanges with one target.
type Tally struct {
	Target   netip.AddrPort
	Answers  map[string]int // by name of the server
	Failures map[string]int // by reason
}

// Failed returns the number of exchanges that went wrong.
func (r *Result) Failed() int {
	failed := 0
	for _, reasons := range r.Failures() {
		failed += reasons
	}
	return failed
}

// Failures returns how often each reason came up over all targets. The reason
// has the target before it.
func (r *Result) Failures() map[string]int {
	all := make(map[string]int)
	for _, tally := range r.Tallies {
		for reason, count := range tally.Failures {
			all[tally.Target.String()+": "+reason] += count
		}
	}
	return all
}

// Answers returns how often each server answered, over the targets that want
// returns true for.
func (r *Result) Answers(want func(target netip.AddrPort) bool) map[string]int {
	all := make(map[string]int)
	for _, tally := range r.Tallies {
		if !want(tally.Target) {
			continue
		}
		for name, count := range tally.Answers {
			all[name] += count
		}
	}
	return all
}

// Add adds what came of another job.
func (r *Result) Add(other Result) {
	r.Tallies = append(r.Tallies, other.Tallies...)
	r.Nanos = append(r.Nanos, other.Nanos...)
}

func (j Job) withDefaults() Job {
	j.Workers = max(j.Workers, 1)
	j.PerSocket = max(j.PerSocket, 1)
	if j.Kind != UDPUnconnected {
		j.PerSocket = 1
	}
	if j.Timeout == 0 {
		j.Timeout = time.Second
	}
	return j
}
