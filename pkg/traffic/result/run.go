package result

import (
	"maps"
	"slices"
	"time"
)

// Run is one load and what came of it. Counts are of the measured time only:
// the warm-up is in none of them.
type Run struct {
	Name   string            `json:"name"`
	Labels map[string]string `json:"labels,omitempty"` // what tells runs apart: contender, services, round
	Load   Load              `json:"load"`

	// Started is when counting began, Elapsed how long load was offered from
	// then on. Rates are counts by Elapsed. What was under way at the end was
	// waited for, for a timeout at most, and counts too.
	Started time.Time     `json:"started"`
	Elapsed time.Duration `json:"elapsed_ns"`
	// Interrupted says that the run ended before its time.
	Interrupted bool `json:"interrupted"`

	// Due is how many operations should have begun in the measured time. Each
	// of them is Completed or Failed.
	Due       uint64 `json:"due"`
	Completed uint64 `json:"completed"`
	Failed    uint64 `json:"failed"`
	// InTime is how many operations ended in the measured time, whenever they
	// were due: the rate that was sustained.
	InTime uint64 `json:"completed_in_time"`
	// Errors are the failed ones by kind; ErrorExamples is the text of the
	// first of each kind.
	Errors        map[ErrorKind]uint64 `json:"errors,omitempty"`
	ErrorExamples map[ErrorKind]string `json:"error_examples,omitempty"`
	// LastFailed is when the last of them was due, after counting began.
	LastFailed time.Duration `json:"last_failed_ns,omitempty"`
	// Broken is how many connections that were established were lost without
	// the client's doing, idle or not.
	Broken uint64 `json:"broken_connections"`

	Bytes   Bytes    `json:"bytes"`
	Packets *Packets `json:"packets,omitempty"` // of one-way loads only

	// Latency is of completed operations, from the moment at which they were
	// due: if the generator or the server is late, that is in it. Service is
	// of the same operations from the moment at which they began. In a closed
	// loop both are the same.
	Latency *Histogram `json:"latency,omitempty"`
	Service *Histogram `json:"service,omitempty"`
	// Lateness is how much later than due operations began while the
	// generator had a connection free for them: its own share of Latency.
	Lateness *Histogram `json:"lateness,omitempty"`

	Interval time.Duration `json:"interval_ns"` // between points of the time line
	TimeLine []Point       `json:"time_line,omitempty"`
	Events   []Event       `json:"events,omitempty"`
	Drill    *Drill        `json:"drill,omitempty"`
	Churn    *Churn        `json:"churn,omitempty"`
	Backends []Backend     `json:"backends,omitempty"`
	Fairness *Fairness     `json:"fairness,omitempty"`

	// CPU is what the generator's own process used in the measured time.
	CPU time.Duration `json:"generator_cpu_ns"`
	// Use is what it took of the machine, in scenarios only.
	Use     *Use     `json:"use,omitempty"`
	Ceiling *Ceiling `json:"ceiling,omitempty"`
	// Limited says that the rate is within 80 % of the ceiling: the figure
	// says as much about the generator as about what it measured.
	Limited bool `json:"limited_by_generator"`
}

// Load is what was asked for.
type Load struct {
	Kind        string        `json:"kind"`                      // what an operation is, see pkg/traffic/load
	Download    bool          `json:"download,omitempty"`        // of bulk: from server to client
	Loop        string        `json:"loop"`                      // open or closed
	Rate        float64       `json:"rate_per_second,omitempty"` // of operations in all, in an open loop
	Arrivals    string        `json:"arrivals,omitempty"`        // constant or poisson, in an open loop
	Targets     []string      `json:"targets"`
	Sources     []string      `json:"sources,omitempty"` // prefixes of client addresses, if not the kernel's choice
	Connections int           `json:"connections"`       // at the same time at most
	Senders     int           `json:"senders"`           // threads
	PerSocket   int           `json:"per_socket"`        // operations before a socket is replaced, 0: kept to the end
	Request     int           `json:"request_bytes"`
	Response    int           `json:"response_bytes"`
	Timeout     time.Duration `json:"timeout_ns"` // of an operation from its beginning
	WarmUp      time.Duration `json:"warm_up_ns"`
	Duration    time.Duration `json:"duration_ns"`
}

// ErrorKind says in a word what went wrong with an operation.
type ErrorKind string

// The kinds of errors.
const (
	Refused     ErrorKind = "refused"      // nobody listens, or the load balancer says so
	Timeout     ErrorKind = "timeout"      // no end within the timeout; for UDP a lost datagram looks alike
	Reset       ErrorKind = "reset"        // the peer reset the connection
	Closed      ErrorKind = "closed"       // the peer closed it in the middle
	Unreachable ErrorKind = "unreachable"  // no route, or an ICMP error says so
	NoPorts     ErrorKind = "no-ports"     // the client's addresses have no free port left
	NoResources ErrorKind = "no-resources" // descriptors, memory or buffers of the client
	BadAnswer   ErrorKind = "bad-answer"   // not what was asked for, HTTP status 400 and above among it
	NotStarted  ErrorKind = "not-started"  // due, but no connection was free until the end
	Lost        ErrorKind = "lost"         // one-way datagrams that no backend received
	Unaccounted ErrorKind = "unaccounted"  // one-way datagrams of which nobody said whether they arrived
	Other       ErrorKind = "other"
)

// Bytes counts payload, without headers of UDP and below.
type Bytes struct {
	Sent     uint64 `json:"sent_bytes"`
	Received uint64 `json:"received_bytes"`
}

// Packets counts the datagrams of a one-way load.
type Packets struct {
	Sent     uint64 `json:"sent"`
	Received uint64 `json:"received"`        // by backends, as they say; of a flood, by the device next to the client
	Unknown  uint64 `json:"unknown"`         // on flows whose backend did not say how many it received
	Senders  uint64 `json:"flows"`           // sockets that sent
	Reports  uint64 `json:"flows_accounted"` // sockets whose backend answered at the end
}

// Point is an interval of the time line.
type Point struct {
	At        time.Duration `json:"at_ns"`                // its beginning
	Due       uint64        `json:"due"`                  // in this interval
	Completed uint64        `json:"completed"`            // in this interval
	Failed    uint64        `json:"failed"`               // in this interval, of all that were due until then
	DueFailed uint64        `json:"due_failed,omitempty"` // of those that were due in this interval, whenever they failed
	Broken    uint64        `json:"broken_connections"`
	Bytes     uint64        `json:"bytes"` // both ways
	// Latencies of the operations that were due in this interval and have
	// completed, then or later. 0 if there is none.
	P50 time.Duration `json:"p50_ns"`
	P99 time.Duration `json:"p99_ns"`
	Max time.Duration `json:"max_ns"`
}

// Event is something that happened to what is measured.
type Event struct {
	At     time.Duration `json:"at_ns"`
	Took   time.Duration `json:"took_ns"`
	Name   string        `json:"name"`
	Detail string        `json:"detail,omitempty"` // what went wrong, or what came of it
}

// Backend is what came from one server.
type Backend struct {
	Name string `json:"name"`
	// Choices is how often a new socket got this backend: once for a
	// connection, however much goes over it.
	Choices uint64 `json:"choices"`
	Answers uint64 `json:"answers"`
	// First and Last are when the first and the last socket that got this
	// backend was connected, after counting began: negative in the warm-up. The
	// first one is that from the mark of the load on, absent if there is none.
	// Runs that were pooled do not have them, nor do one-way loads.
	First *time.Duration `json:"first_choice_ns,omitempty"`
	Last  time.Duration  `json:"last_choice_ns,omitempty"`
}

// Ceiling is what the generator can do at most, with nothing in between.
type Ceiling struct {
	PerSecond float64 `json:"per_second"` // in the unit of Run.PerSecond
	How       string  `json:"how"`
}

// limitedFrom is the share of its ceiling from which on the generator counts
// as what limits a result.
const limitedFrom = 0.8

// PerSecond returns the operations a second that ended in the measured time: of
// one-way loads the packets received, of bulk loads the bytes.
func (r *Run) PerSecond() float64 {
	if r.Elapsed <= 0 {
		return 0
	}
	return float64(r.Done()) / r.Elapsed.Seconds()
}

// Done returns what PerSecond counts.
func (r *Run) Done() uint64 {
	switch {
	case r.Packets != nil:
		return r.Packets.Received
	case r.Load.Kind == "bulk":
		return r.Bytes.Sent + r.Bytes.Received
	default:
		return r.InTime
	}
}

// Answers returns how often each server answered.
func (r *Run) Answers() map[string]uint64 {
	answers := make(map[string]uint64)
	for _, b := range r.Backends {
		answers[b.Name] = b.Answers
	}
	return answers
}

// SetCeiling notes the ceiling and whether the run came near to it.
func (r *Run) SetCeiling(c Ceiling) {
	r.Ceiling = &c
	r.Limited = r.PerSecond() >= limitedFrom*c.PerSecond
}

// SetBackends notes who answered, sorted by name, and how fair that was.
func (r *Run) SetBackends(backends map[string]Backend) {
	r.Backends = slices.SortedFunc(maps.Values(backends), func(a, b Backend) int {
		switch {
		case a.Name < b.Name:
			return -1
		case a.Name > b.Name:
			return 1
		}
		return 0
	})
	choices := make([]uint64, len(r.Backends))
	for i, b := range r.Backends {
		choices[i] = b.Choices
	}
	r.Fairness = NewFairness(choices)
}
