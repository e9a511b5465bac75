package load

import (
	"errors"
	"math"
	"time"

	"golang.org/x/sys/unix"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/headgate/headgate/pkg/traffic/result"
	"github.com/headgate/headgate/pkg/traffic/wire"
)

// window is the time that counts, in nanoseconds since the clock began.
type window struct {
	begin, end int64
	interval   int64
	mark       int64 // since begin
}

// record is what one sender has seen.
type record struct {
	window
	due, completed, inTime uint64
	failed                 map[result.ErrorKind]uint64
	examples               map[result.ErrorKind]string
	broken                 uint64
	bytes                  result.Bytes
	latency, service, late *result.Histogram
	points                 []point
	backends               map[string]*backend
	lastFailed             int64 // when the last operation that failed was due, before the window: none
}

// backend is what came from one server, when the first socket that chose it from
// the mark on was connected, and the last one.
type backend struct {
	choices, answers uint64
	first, last      int64
}

// point is an interval of the time line. Its latencies are exact to two digits
// of microseconds, so that a thousand of them fit into memory.
type point struct {
	due, completed, failed, dueFailed, broken, bytes uint64
	latency                                          *hdrhistogram.Histogram
}

// newRecord has memory for all intervals, up to those in which the last
// operations end.
func newRecord(spec *Spec) *record {
	w := window{end: spec.Duration.Nanoseconds(), interval: spec.Interval.Nanoseconds(), mark: spec.Mark.Nanoseconds()}
	r := &record{
		window: w, failed: make(map[result.ErrorKind]uint64), examples: make(map[result.ErrorKind]string),
		latency: result.NewHistogram(), service: result.NewHistogram(), late: result.NewHistogram(),
		backends: make(map[string]*backend),
	}
	r.points = make([]point, (w.end+2*spec.Timeout.Nanoseconds())/w.interval+1)
	for i := range r.points {
		if int64(i)*w.interval < w.end {
			r.points[i].latency = hdrhistogram.New(1, result.Longest.Microseconds(), 2)
		}
	}
	return r
}

// open says when the window begins.
func (r *record) open(begin int64) {
	r.begin, r.end, r.lastFailed = begin, begin+r.end-r.begin, begin-1
}

// at returns the interval of a time from the beginning of the window on.
func (r *record) at(now int64) *point {
	return &r.points[min(max((now-r.begin)/r.interval, 0), int64(len(r.points)-1))]
}

// counts says whether an operation that is due then counts.
func (r *record) counts(due int64) bool { return due >= r.begin && due < r.end }

// operation is when an operation was due, could have begun, began and ended.
type operation struct{ due, could, began, ended int64 }

func (r *record) complete(o operation, bytes uint64) {
	if r.counts(o.ended) { // whenever it was due
		r.inTime++
		p := r.at(o.ended)
		p.completed++
		p.bytes += bytes
	}
	if !r.counts(o.due) {
		return
	}
	r.due++
	r.completed++
	r.latency.Add(time.Duration(o.ended - o.due))
	r.service.Add(time.Duration(o.ended - o.began))
	r.late.Add(time.Duration(o.began - max(o.due, o.could)))
	p := r.at(o.due)
	p.due++
	// Within the bounds, recording cannot fail.
	_ = p.latency.RecordValue(min(max((o.ended-o.due+999)/1000, 1), result.Longest.Microseconds()))
}

func (r *record) fail(o operation, kind result.ErrorKind, err error) {
	if !r.counts(o.due) {
		return
	}
	r.due++
	r.lastFailed = max(r.lastFailed, o.due)
	p := r.at(o.due)
	p.due++
	p.dueFailed++
	r.at(o.ended).failed++
	if r.failed[kind]++; r.failed[kind] == 1 && err != nil {
		r.examples[kind] = err.Error()
	}
}

// lose notes a connection that was lost: at a time that counts, or by an
// operation that does.
func (r *record) lose(now, due int64) {
	if r.counts(now) || r.counts(due) {
		r.broken++
		r.at(now).broken++
	}
}

// answered notes who answered, in the window. A choice is the first answer of a
// socket in it, and was made at a time.
func (r *record) answered(name []byte, choice bool, chosen int64) {
	b := r.backends[string(name)]
	if b == nil {
		b = &backend{first: math.MaxInt64, last: math.MinInt64}
		r.backends[string(name)] = b
	}
	b.answers++
	if choice {
		b.choices++
		b.last = max(b.last, chosen)
		if chosen >= r.begin+r.mark {
			b.first = min(b.first, chosen)
		}
	}
}

var (
	errTimeout = errors.New("no end in time")
	errClosed  = errors.New("closed by the peer")
)

// kindOf sorts errors.
func kindOf(err error) result.ErrorKind {
	for _, e := range errorKinds {
		for _, cause := range e.causes {
			if errors.Is(err, cause) {
				return e.kind
			}
		}
	}
	return result.Other
}

var errorKinds = []struct {
	kind   result.ErrorKind
	causes []error
}{
	{result.Timeout, []error{errTimeout, unix.ETIMEDOUT}},
	{result.Refused, []error{unix.ECONNREFUSED}},
	{result.Reset, []error{unix.ECONNRESET, unix.EPIPE, unix.ECONNABORTED, unix.ENOTCONN}},
	{result.Closed, []error{errClosed}},
	{result.Unreachable, []error{unix.EHOSTUNREACH, unix.ENETUNREACH, unix.ENETDOWN, unix.EHOSTDOWN, unix.EPERM, unix.EACCES}},
	{result.NoPorts, []error{unix.EADDRNOTAVAIL, unix.EADDRINUSE}},
	{result.NoResources, []error{unix.EMFILE, unix.ENFILE, unix.ENOMEM, unix.ENOBUFS}},
	{result.BadAnswer, []error{wire.ErrNotOurs, errAnswer}},
}
