package protobuf

import "unique"

// mostInterned is of how many bytes the values are remembered: more than the names of all
// nodes of a large cluster have.
const mostInterned = 1 << 20

// interned makes one value for all who are written with the same bytes.
type interned[T any] struct {
	read   func([]byte) *T
	values map[string]*T
	bytes  int // of the keys
}

func internedBy[T any](read func([]byte) *T) interned[T] {
	return interned[T]{read: read, values: map[string]*T{}}
}

// of returns the value that some bytes stand for.
func (in *interned[T]) of(b []byte) *T {
	v, known := in.values[string(b)]
	if known {
		return v
	}
	if in.bytes += len(b); in.bytes > mostInterned {
		in.values, in.bytes = map[string]*T{}, len(b)
	}
	v = in.read(b)
	in.values[string(b)] = v
	return v
}

// text reads a string, of which there is one copy in the process.
func text(b []byte) *string {
	s := unique.Make(string(b)).Value()
	return &s
}

// message reads a message, which fits its shape, with the decoder of the API.
func message[T any, P interface {
	*T
	Unmarshal([]byte) error
}](b []byte) *T {
	v := new(T)
	_ = P(v).Unmarshal(b) // it takes what fits
	return v
}
