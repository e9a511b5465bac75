// Package wire is what clients and servers of the load generator say to each
// other, over TCP and UDP. A request says how long its answer is to be, an
// answer says who gives it. All numbers are in network byte order.
package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// The sizes of messages in bytes. The rest up to the length of a message is
// padding.
const (
	RequestHeader = 24
	AnswerHeader  = 25 // and the name of the server
	MaxName       = 63
	// MaxDatagram fits into an Ethernet frame with IPv6 and UDP headers.
	MaxDatagram = 1452
	// MaxMessage bounds what a server is asked to send at once.
	MaxMessage = 1 << 24
)

const (
	requestMagic uint32 = 'H'<<24 | 'G'<<16 | 'q'<<8 | '1'
	answerMagic  uint32 = 'H'<<24 | 'G'<<16 | 'a'<<8 | '1'
)

// Flags of a request.
const (
	// OneWay asks for no answer: the server counts. The sequence is the flow.
	OneWay uint32 = 1 << iota
	// Report asks how many one-way datagrams the server received of the flow
	// that the sequence names.
	Report
	// Bulk says that everything up to the end of the stream is payload. The
	// answer comes then, and counts the bytes.
	Bulk
	// Download asks for payload as fast as it goes, until the client ends its
	// side of the stream. The answer is the end of the stream, and counts the bytes
	// before it: they are zeros, so that it is found.
	Download
)

// Request is the header of a request.
type Request struct {
	Length   uint32 // of the whole request
	Answer   uint32 // bytes that the answer is to have
	Flags    uint32
	Sequence uint64 // comes back with the answer
}

// Put writes the header to the beginning of b.
func (r Request) Put(b []byte) {
	binary.BigEndian.PutUint32(b, requestMagic)
	binary.BigEndian.PutUint32(b[4:], r.Length)
	binary.BigEndian.PutUint32(b[8:], r.Answer)
	binary.BigEndian.PutUint32(b[12:], r.Flags)
	binary.BigEndian.PutUint64(b[16:], r.Sequence)
}

// PutSequence changes the sequence of a request that stands at the beginning of
// b.
func PutSequence(b []byte, sequence uint64) { binary.BigEndian.PutUint64(b[16:], sequence) }

// IsRequest says whether b, at least four bytes, begins a request.
func IsRequest(b []byte) bool { return binary.BigEndian.Uint32(b) == requestMagic }

// ErrNotOurs says that a peer speaks something else.
var ErrNotOurs = errors.New("not an answer of headgate-bench server")

// ParseRequest reads the header at the beginning of b, which has at least
// RequestHeader bytes.
func ParseRequest(b []byte) (Request, error) {
	if !IsRequest(b) {
		return Request{}, errors.New("not a request of headgate-bench")
	}
	r := Request{
		Length: binary.BigEndian.Uint32(b[4:]), Answer: binary.BigEndian.Uint32(b[8:]),
		Flags: binary.BigEndian.Uint32(b[12:]), Sequence: binary.BigEndian.Uint64(b[16:]),
	}
	if r.Length < RequestHeader || r.Length > MaxMessage || r.Answer > MaxMessage {
		return Request{}, fmt.Errorf("request of %d bytes for an answer of %d, at most %d", r.Length, r.Answer, MaxMessage)
	}
	return r, nil
}

// Answer is an answer without its padding.
type Answer struct {
	Length   uint32 // of the whole answer
	Sequence uint64 // of the request
	Count    uint64 // of what the request asked to be counted
	Name     []byte // of the server, in the memory that was parsed
}

// LastAnswer returns the answer that data ends with, behind zeros.
func LastAnswer(data []byte) (Answer, error) {
	for length := AnswerHeader; length <= min(len(data), AnswerHeader+MaxName); length++ {
		a, err := ParseAnswer(data[len(data)-length:])
		if err == nil && int(a.Length) == length {
			return a, nil
		}
	}
	return Answer{}, ErrNotOurs
}

// AnswerLength returns the length of an answer that is asked to have some
// length: it is never shorter than what it has to say.
func AnswerLength(asked uint32, name string) int { return max(int(asked), AnswerHeader+len(name)) }

// PutAnswer writes the beginning of an answer to b, which has AnswerLength
// bytes or is what a datagram holds.
func PutAnswer(b []byte, sequence, count uint64, name string) {
	binary.BigEndian.PutUint32(b, answerMagic)
	binary.BigEndian.PutUint32(b[4:], uint32(len(b)))
	binary.BigEndian.PutUint64(b[8:], sequence)
	binary.BigEndian.PutUint64(b[16:], count)
	b[24] = byte(copy(b[AnswerHeader:], name))
}

// ParseAnswer reads the answer at the beginning of b. Without error and with a
// Length of 0, more of it must come first.
func ParseAnswer(b []byte) (Answer, error) {
	if len(b) >= 4 && binary.BigEndian.Uint32(b) != answerMagic {
		return Answer{}, ErrNotOurs
	}
	if len(b) < AnswerHeader || len(b) < AnswerHeader+int(b[24]) {
		return Answer{}, nil
	}
	a := Answer{
		Length: binary.BigEndian.Uint32(b[4:]), Sequence: binary.BigEndian.Uint64(b[8:]),
		Count: binary.BigEndian.Uint64(b[16:]), Name: b[AnswerHeader : AnswerHeader+int(b[24])],
	}
	if int(a.Length) < AnswerHeader+len(a.Name) || a.Length > MaxMessage {
		return Answer{}, ErrNotOurs
	}
	return a, nil
}
