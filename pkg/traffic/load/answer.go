package load

import (
	"errors"
	"fmt"

	"github.com/headgate/headgate/pkg/traffic/wire"
)

// answerReader reads the answers of one connection, one at a time.
type answerReader interface {
	// begin forgets the answer before.
	begin(sequence uint64)
	// take takes what has come, and says whether the answer is whole.
	take(data []byte) (whole bool, err error)
	// backend returns who answered, nil if the answer does not say. It is
	// valid until begin.
	backend() []byte
	// last says that the connection ends with this answer.
	last() bool
}

// errAnswer is the cause of all errors about what an answer says.
var errAnswer = errors.New("wrong answer")

// messageReader reads answers of package wire from a stream.
type messageReader struct {
	sequence uint64
	head     [wire.AnswerHeader + wire.MaxName]byte
	got      int // bytes of the answer so far
	length   int // of the answer, 0: not known yet
	name     int // its length
}

func (r *messageReader) begin(sequence uint64) {
	r.sequence, r.got, r.length, r.name = sequence, 0, 0, 0
}
func (r *messageReader) last() bool      { return false }
func (r *messageReader) backend() []byte { return r.head[wire.AnswerHeader : wire.AnswerHeader+r.name] }

func (r *messageReader) take(data []byte) (bool, error) {
	if r.got < len(r.head) {
		copy(r.head[r.got:], data)
	}
	r.got += len(data)
	if r.length == 0 {
		a, err := wire.ParseAnswer(r.head[:min(r.got, len(r.head))])
		if err != nil {
			return false, err
		}
		if a.Length == 0 {
			return false, nil
		}
		if a.Sequence != r.sequence {
			return false, fmt.Errorf("%w: to request %d, not %d", errAnswer, a.Sequence, r.sequence)
		}
		r.length, r.name = int(a.Length), len(a.Name)
	}
	if r.got > r.length {
		return false, fmt.Errorf("%w: %d bytes more than it has", errAnswer, r.got-r.length)
	}
	return r.got == r.length, nil
}

// datagramReader reads answers of package wire, each in a datagram. Those to
// other requests, which timed out, do not count.
type datagramReader struct {
	sequence uint64
	name     []byte
	count    uint64
}

func (r *datagramReader) begin(sequence uint64) { r.sequence = sequence }
func (r *datagramReader) last() bool            { return false }
func (r *datagramReader) backend() []byte       { return r.name }

func (r *datagramReader) take(data []byte) (bool, error) {
	a, err := wire.ParseAnswer(data)
	if err != nil {
		return false, err
	}
	if a.Length == 0 {
		return false, fmt.Errorf("%w: %d bytes", wire.ErrNotOurs, len(data))
	}
	r.name = append(r.name[:0], a.Name...)
	r.count = a.Count
	return a.Sequence == r.sequence, nil
}
