package serve

import (
	"sync"

	"github.com/headgate/headgate/pkg/traffic/netio"
	"github.com/headgate/headgate/pkg/traffic/wire"
)

// receive takes the datagrams that are there, once: the poller says if there
// are more.
func (l *loop) receive(e *endpoint) {
	n, err := l.batch.Receive(e.udp)
	if err != nil {
		return // none left, or an ICMP error for an earlier answer
	}
	e.seen(l.now())
	answers := 0
	for i := range n {
		length := l.datagram(e, l.batch.Payload(i), l.batch.Room(i))
		if length == 0 {
			continue
		}
		l.batch.Swap(answers, i)
		l.batch.SetLength(answers, length)
		answers++
	}
	if answers == 0 {
		return
	}
	if l.server.faults.Load().Delay == 0 {
		l.send(e.udp, l.batch, answers)
		return
	}
	// The batch waits, and the loop goes on with another.
	held := l.batch
	l.batch = netio.NewBatch(batchSize, 2048)
	l.later(func() {
		l.send(e.udp, held, answers)
		held.Close()
	})
}

// send sends answers. One that the kernel does not take is lost, as datagrams
// are; those behind it go on.
func (l *loop) send(fd int, batch *netio.Batch, answers int) {
	for first := 0; first < answers; {
		n, err := batch.Answer(fd, first, answers)
		if err != nil {
			n = 1
		}
		first += n
	}
}

// datagram looks at a datagram, writes the answer over it, in room, and returns
// its length: 0 for none.
func (l *loop) datagram(e *endpoint, payload, room []byte) int {
	if len(payload) < wire.RequestHeader {
		return 0
	}
	r, err := wire.ParseRequest(payload)
	if err != nil {
		return 0
	}
	if r.Flags&wire.Report == 0 && l.server.fault() != noFault {
		return 0
	}
	var count uint64
	switch {
	case r.Flags&wire.OneWay != 0:
		e.datagrams.Add(1)
		l.server.flows.add(r.Sequence)
		return 0
	case r.Flags&wire.Report != 0:
		count = l.server.flows.count(r.Sequence)
	default:
		e.requests.Add(1)
	}
	name := e.name()
	length := min(wire.AnswerLength(r.Answer, name), wire.MaxDatagram)
	wire.PutAnswer(room[:length], r.Sequence, count, name)
	return length
}

// maxFlows bounds how many flows of one-way datagrams are remembered.
const maxFlows = 1 << 16

// flows counts one-way datagrams by flow, whichever endpoint they came to: if a
// flow is moved to another backend, its count goes on.
type flows struct {
	shards [16]struct {
		sync.Mutex
		counts map[uint64]uint64
	}
}

func (f *flows) init() {
	for i := range f.shards {
		f.shards[i].counts = make(map[uint64]uint64)
	}
}

func (f *flows) add(flow uint64) {
	shard := &f.shards[flow%uint64(len(f.shards))]
	shard.Lock()
	defer shard.Unlock()
	if len(shard.counts) >= maxFlows/len(f.shards) && shard.counts[flow] == 0 {
		clear(shard.counts) // flows of runs that are over, unless somebody overdoes it
	}
	shard.counts[flow]++
}

func (f *flows) count(flow uint64) uint64 {
	shard := &f.shards[flow%uint64(len(f.shards))]
	shard.Lock()
	defer shard.Unlock()
	return shard.counts[flow]
}
