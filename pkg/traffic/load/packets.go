package load

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"golang.org/x/sys/unix"

	"github.com/headgate/headgate/pkg/traffic/netio"
	"github.com/headgate/headgate/pkg/traffic/result"
	"github.com/headgate/headgate/pkg/traffic/wire"
)

// batchSize is how many datagrams go to the kernel in a call at most.
const batchSize = 64

// settle is how long datagrams may be on their way before servers are asked how
// many they received.
const settle = 50 * time.Millisecond

// packets is a sender of one-way datagrams. Each socket is a flow with a number
// of its own, by which servers count; the warm-up has another number.
type packets struct {
	*sender
	batch     *netio.Batch
	flows     []flow
	turn      int
	sentTotal uint64 // with the warm-up
}

type flow struct {
	id       uint64 // of the window; the warm-up has the one before
	sent     uint64 // in the window
	received uint64
	reported bool
	backend  []byte
}

func runPackets(ctx context.Context, spec *Spec, start *starter) (result.Run, error) {
	id := rand.Uint64() &^ (1<<32 - 1) // flows of other runs have other numbers
	all := make([]*packets, spec.Senders)
	for i := range all {
		s, err := newSender(spec.asUDP(), i, start.began)
		if err != nil {
			return result.Run{}, err
		}
		all[i] = &packets{sender: s, batch: netio.NewBatch(batchSize, spec.Request), flows: make([]flow, len(s.conns))}
		for j := range all[i].flows {
			all[i].flows[j].id = id + uint64(2*(j*spec.Senders+i)+1)
		}
	}
	if err := start.threads(ctx, func(i int) (part, error) { return all[i], all[i].openAll() }); err != nil {
		return result.Run{}, err
	}
	run := newRun(spec, start)
	run.Interrupted = ctx.Err() != nil
	mergePackets(&run, all)
	return run, nil
}

func (p *packets) close() {
	p.batch.Close()
	p.sender.close()
}

// asUDP is the load as one of sockets that could be asked.
func (s Spec) asUDP() *Spec {
	s.Kind = UDP
	return &s
}

func (p *packets) openAll() error {
	for i := range p.conns {
		if err := p.dial(&p.conns[i]); err != nil {
			return fmt.Errorf("open flow %d: %w", i+1, err)
		}
		p.conns[i].state = idle
	}
	return nil
}

func (p *packets) run(ctx context.Context, begin int64) error {
	p.open(begin + p.spec.WarmUp.Nanoseconds())
	for {
		now := p.now()
		p.cpu.look(now, p.window)
		if ctx.Err() != nil {
			p.end = min(p.end, max(now, p.begin))
			p.stopped = now
		}
		if now >= p.end || p.stopped > 0 {
			break
		}
		if now < begin {
			time.Sleep(time.Duration(begin - now))
			continue
		}
		p.burst(now, begin)
	}
	p.cpu.look(p.end, p.window)
	return p.account()
}

// burst sends what is due, up to a batch, on the flow whose turn it is.
func (p *packets) burst(now, begin int64) {
	count := batchSize
	if p.spec.Rate > 0 {
		rate := p.spec.Rate / float64(p.spec.Senders)
		due := uint64(float64(now-begin) / 1e9 * rate)
		if due <= p.sentTotal {
			time.Sleep(time.Duration(float64(p.sentTotal+1-due) / rate * 1e9))
			return
		}
		count = int(min(due-p.sentTotal, batchSize))
	}
	i := p.turn
	p.turn = (p.turn + 1) % len(p.flows)
	f := &p.flows[i]
	id := f.id
	if now < p.begin {
		id--
	}
	header := wire.Request{Length: uint32(p.spec.Request), Flags: wire.OneWay, Sequence: id}
	for j := range count {
		header.Put(p.batch.Room(j))
		p.batch.SetLength(j, p.spec.Request)
	}
	n, err := p.batch.Send(p.conns[i].fd, count)
	if err != nil {
		p.refused(now, err)
	}
	p.sentTotal += uint64(n)
	if now >= p.begin {
		f.sent += uint64(n)
		p.at(now).completed += uint64(n)
		p.at(now).due += uint64(n)
		p.at(now).bytes += uint64(n * p.spec.Request)
	}
}

// refused notes that the kernel did not take a datagram. A full buffer is not
// an error: the datagram goes later. ICMP errors are of earlier datagrams,
// which are among the lost.
func (p *packets) refused(now int64, err error) {
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.ENOBUFS) {
		time.Sleep(50 * time.Microsecond)
		return
	}
	if p.counts(now) && p.examples[result.Lost] == "" {
		p.examples[result.Lost] = err.Error()
	}
}

// account asks the servers how many datagrams of each flow they received. It
// takes what is the most: the last may have been on their way.
func (p *packets) account() error {
	time.Sleep(settle)
	for range udpTries {
		missing := 0
		for i := range p.flows {
			if f := &p.flows[i]; !f.reported || f.received < f.sent {
				missing++
				request := p.protocol.request[:wire.RequestHeader]
				wire.Request{Length: wire.RequestHeader, Flags: wire.Report, Sequence: f.id}.Put(request)
				_, _ = unix.Write(p.conns[i].fd, request) // no answer is an answer too
			}
		}
		if missing == 0 {
			return nil
		}
		for limit := p.now() + p.spec.Timeout.Nanoseconds()/udpTries; missing > 0 && p.now() < limit; {
			err := p.poller.Wait(time.Duration(limit-p.now()), func(e netio.Event) {
				missing -= p.report(int(e.Token().Slot))
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// report reads the answers that are there for a flow, and returns how many.
func (p *packets) report(i int) (answers int) {
	f := &p.flows[i]
	reader := new(datagramReader)
	reader.begin(f.id)
	for {
		n, err := unix.Read(p.conns[i].fd, p.buffer[:])
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if errors.Is(err, unix.EAGAIN) {
			return answers
		}
		if err != nil {
			continue // an ICMP error: reading it takes it away
		}
		if whole, err := reader.take(p.buffer[:n]); whole && err == nil {
			f.received = max(f.received, reader.count)
			f.reported = true
			f.backend = append(f.backend[:0], reader.backend()...)
			answers++
		}
	}
}

// mergePackets adds what all senders have seen to a run.
func mergePackets(run *result.Run, all []*packets) {
	records := make([]*record, len(all))
	var sum result.Packets
	backends := make(map[string]result.Backend)
	for i, p := range all {
		records[i] = p.record
		run.CPU += p.cpu.used()
		for _, f := range p.flows {
			sum.Senders++
			sum.Sent += f.sent
			if !f.reported {
				sum.Unknown += f.sent
				continue
			}
			sum.Reports++
			sum.Received += min(f.received, f.sent) // copies do not make up for losses
			b := backends[string(f.backend)]
			backends[string(f.backend)] = result.Backend{Name: string(f.backend), Choices: b.Choices + 1, Answers: b.Answers + f.received}
		}
	}
	merge(run, records)
	run.Latency, run.Service, run.Lateness = nil, nil, nil
	run.Packets = &sum
	run.Bytes.Sent = sum.Sent * uint64(run.Load.Request)
	run.SetBackends(backends)
	run.Due, run.Completed, run.InTime = sum.Sent, sum.Received, sum.Received
	if lost := sum.Sent - sum.Unknown - sum.Received; lost > 0 {
		run.Errors[result.Lost] = lost
	}
	if sum.Unknown > 0 {
		run.Errors[result.Unaccounted] = sum.Unknown
	}
	run.Failed = sum.Sent - sum.Received
	if rate := run.Load.Rate; rate > 0 && !run.Interrupted {
		if want := uint64(rate * run.Elapsed.Seconds()); want > sum.Sent+batchSize*uint64(len(all)) {
			run.Errors[result.NotStarted] = want - sum.Sent
			run.Failed += want - sum.Sent
			run.Due = want
		}
	}
}
