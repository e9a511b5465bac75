package load

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/headgate/headgate/pkg/traffic/netio"
	"github.com/headgate/headgate/pkg/traffic/result"
	"github.com/headgate/headgate/pkg/traffic/wire"
)

// bulk is a sender that writes as fast as its connections take it. Bytes count
// when the receiver's kernel has acknowledged them, and those of a download when
// they are read.
type bulk struct {
	*sender
	chunk  []byte
	acked  []uint64 // by connection, when it was last looked at
	looked int64    // when that was
	total  []uint64 // written to the present socket of a connection, or read from it
	tails  [][]byte // of downloads: the end of what was read
}

// bulkRequest is how much is written at once.
const bulkRequest = 128 << 10

func runBulk(ctx context.Context, spec *Spec, start *starter) (result.Run, error) {
	all, records := make([]*bulk, spec.Senders), make([]*record, spec.Senders)
	for i := range all {
		b, err := newBulk(spec, i, start.began)
		if err != nil {
			return result.Run{}, err
		}
		all[i], records[i] = b, b.record
	}
	if err := start.threads(ctx, func(i int) (part, error) { return all[i], nil }); err != nil {
		return result.Run{}, err
	}
	run := newRun(spec, start)
	run.Interrupted = ctx.Err() != nil
	merge(&run, records)
	for _, b := range all {
		run.CPU += b.cpu.used()
	}
	run.Latency, run.Service, run.Lateness = nil, nil, nil
	return run, nil
}

func newBulk(spec *Spec, index int, began time.Time) (*bulk, error) {
	asRR := *spec
	asRR.Kind = RR
	asRR.Request = wire.RequestHeader
	s, err := newSender(&asRR, index, began)
	if err != nil {
		return nil, err
	}
	flags := wire.Bulk
	if spec.Download {
		flags = wire.Download
	}
	wire.Request{Length: wire.RequestHeader, Flags: flags}.Put(s.protocol.request)
	return &bulk{
		sender: s, chunk: make([]byte, bulkRequest), acked: make([]uint64, len(s.conns)), total: make([]uint64, len(s.conns)), tails: make([][]byte, len(s.conns)),
	}, nil
}

func (b *bulk) run(ctx context.Context, begin int64) error {
	b.open(begin + b.spec.WarmUp.Nanoseconds())
	for i := range b.conns {
		b.connect(&b.conns[i])
	}
	for ctx.Err() == nil {
		now := b.now()
		b.cpu.look(now, b.window)
		b.look(now)
		if now >= b.end {
			break
		}
		b.reconnect(now)
		if err := b.poller.Wait(time.Duration(b.interval/4), b.event); err != nil {
			return err
		}
	}
	b.end = min(b.end, max(b.now(), b.begin))
	b.look(b.end)
	b.cpu.look(b.end, b.window)
	return b.finishAll()
}

// connect begins a connection, which is an operation.
func (b *bulk) connect(c *conn) {
	now := b.now()
	c.operation = operation{now, now, now, now}
	b.acked[c.slot], b.total[c.slot], b.tails[c.slot] = 0, 0, b.tails[c.slot][:0]
	c.state = connecting
	if err := b.dial(c); err != nil {
		b.broke(c, err)
	}
}

// reconnect tries again what was broken, a little later.
func (b *bulk) reconnect(now int64) {
	for i := range b.conns {
		if c := &b.conns[i]; c.state == absent && now-c.ended > 10*time.Millisecond.Nanoseconds() {
			b.connect(c)
		}
	}
}

// broke notes that a connection failed.
func (b *bulk) broke(c *conn, err error) {
	c.ended = b.now()
	c.due = min(max(c.due, b.begin), b.end-1) // it counts, whenever it began
	b.fail(c.operation, kindOf(err), err)
	if c.state == asking {
		b.lose(c.ended, c.due)
	}
	if c.fd >= 0 {
		b.hangUp(c, false)
	}
	c.state = absent
}

func (b *bulk) event(e netio.Event) {
	c := &b.conns[e.Token().Slot]
	if c.fd < 0 || c.generation != e.Token().Generation {
		return
	}
	if e.Lost() {
		code, _ := unix.GetsockoptInt(c.fd, unix.SOL_SOCKET, unix.SO_ERROR)
		b.broke(c, unix.Errno(orElse(code, int(unix.ECONNRESET))))
		return
	}
	if c.state == connecting {
		c.state = asking
		if _, err := unix.Write(c.fd, b.protocol.request); err != nil {
			b.broke(c, fmt.Errorf("send: %w", err))
			return
		}
		b.total[c.slot] = 0
	}
	if b.spec.Download {
		if _, err := b.drain(c); err != nil {
			b.broke(c, err)
		}
		return
	}
	b.pump(c)
}

// writesAtOnce keeps one connection from holding up the others.
const writesAtOnce = 16

func (b *bulk) pump(c *conn) {
	for range writesAtOnce {
		n, err := unix.Write(c.fd, b.chunk)
		switch {
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EAGAIN):
			return
		case err != nil:
			b.broke(c, fmt.Errorf("send: %w", err))
			return
		default:
			b.total[c.slot] += uint64(n)
		}
	}
	// There is more room, of which no event will tell.
	_ = b.poller.Again(c.fd, unix.EPOLLIN|unix.EPOLLOUT|unix.EPOLLRDHUP|unix.EPOLLET, netio.Token{Slot: c.slot, Generation: c.generation})
}

// look counts what was acknowledged since the last look, a few times in an
// interval.
func (b *bulk) look(now int64) {
	if b.spec.Download {
		b.looked = now
		return // what is read is counted then
	}
	inside := now > b.begin && b.looked >= b.begin
	edge := b.looked < b.begin && now >= b.begin || now >= b.end
	if !edge && now-b.looked < b.interval/4 {
		return
	}
	b.looked = now
	for i := range b.conns {
		c := &b.conns[i]
		if c.state != asking {
			continue
		}
		info, err := unix.GetsockoptTCPInfo(c.fd, unix.IPPROTO_TCP, unix.TCP_INFO)
		if err != nil {
			continue
		}
		if inside && info.Bytes_acked > b.acked[i] {
			bytes := info.Bytes_acked - b.acked[i]
			b.bytes.Sent += bytes
			b.at(min(now, b.end-1)).bytes += bytes
		}
		b.acked[i] = info.Bytes_acked
	}
}

// finishAll ends each stream and has the server say what it received.
func (b *bulk) finishAll() error {
	waiting := 0
	for i := range b.conns {
		c := &b.conns[i]
		if c.state != asking || unix.Shutdown(c.fd, unix.SHUT_WR) != nil {
			continue
		}
		waiting++
	}
	answer := func(e netio.Event) {
		c := &b.conns[e.Token().Slot]
		if c.fd < 0 || c.generation != e.Token().Generation || c.state != asking {
			return
		}
		if b.spec.Download {
			if over, err := b.drain(c); over || err != nil {
				waiting--
				b.confirmDownload(c, err)
			}
			return
		}
		n, err := unix.Read(c.fd, b.buffer[:])
		if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR) {
			return
		}
		waiting--
		b.confirmed(c, b.buffer[:max(n, 0)], err)
	}
	for limit := b.now() + b.spec.Timeout.Nanoseconds(); waiting > 0 && b.now() < limit; {
		if err := b.poller.Wait(time.Duration(limit-b.now()), answer); err != nil {
			return err
		}
	}
	for i := range b.conns {
		if state := b.conns[i].state; state == asking || state == connecting {
			b.broke(&b.conns[i], errTimeout)
		}
	}
	return nil
}

// confirmed compares what was sent with what the server says.
func (b *bulk) confirmed(c *conn, data []byte, err error) {
	if err == nil && len(data) == 0 {
		err = errClosed
	}
	reader := new(datagramReader)
	if err == nil {
		_, err = reader.take(data)
	}
	if err == nil && reader.count != b.total[c.slot] {
		err = fmt.Errorf("%w: sent %d bytes, the server received %d", errAnswer, b.total[c.slot], reader.count)
	}
	if err != nil {
		b.broke(c, err)
		return
	}
	b.completeBulk(c, reader.backend())
}

// completeBulk counts a connection that went well to the end.
func (b *bulk) completeBulk(c *conn, backend []byte) {
	c.due, c.ended = b.begin, b.end-1
	b.due++
	b.completed++
	b.inTime++
	b.answered(backend, true, c.dialled)
	c.state = idle
}
