package load

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/headgate/headgate/pkg/traffic/netio"
	"github.com/headgate/headgate/pkg/traffic/wire"
)

// tailLength is the most that the answer at the end of a download has.
const tailLength = wire.AnswerHeader + wire.MaxName

// drain reads what there is on a connection, or for a while. It says whether the
// server has ended it, which is an error while the load goes on.
func (b *bulk) drain(c *conn) (over bool, err error) {
	for range writesAtOnce {
		n, err := unix.Read(c.fd, b.chunk)
		switch {
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EAGAIN):
			return false, nil
		case err != nil:
			return false, fmt.Errorf("receive: %w", err)
		case n == 0 && b.now() < b.end:
			return true, errClosed
		case n == 0:
			return true, nil
		default:
			b.took(c, b.chunk[:n])
		}
	}
	// There is more, of which no event will tell.
	return false, b.poller.Again(c.fd, unix.EPOLLIN|unix.EPOLLOUT|unix.EPOLLRDHUP|unix.EPOLLET, netio.Token{Slot: c.slot, Generation: c.generation})
}

// took counts what was read, and keeps the end of it.
func (b *bulk) took(c *conn, data []byte) {
	b.total[c.slot] += uint64(len(data))
	if now := b.now(); now >= b.begin && now < b.end {
		b.bytes.Received += uint64(len(data))
		b.at(now).bytes += uint64(len(data))
	}
	tail := append(b.tails[c.slot], data[max(0, len(data)-tailLength):]...)
	b.tails[c.slot] = append(tail[:0], tail[max(0, len(tail)-tailLength):]...)
}

// confirmDownload compares what was received with what the server says.
func (b *bulk) confirmDownload(c *conn, err error) {
	var answer wire.Answer
	if err == nil {
		answer, err = wire.LastAnswer(b.tails[c.slot])
	}
	if err == nil && answer.Count+uint64(answer.Length) != b.total[c.slot] {
		err = fmt.Errorf("%w: received %d bytes, the server sent %d", errAnswer, b.total[c.slot]-uint64(answer.Length), answer.Count)
	}
	if err != nil {
		b.broke(c, err)
		return
	}
	b.completeBulk(c, answer.Name)
}
