package cli

import (
	"encoding/json"
	"fmt"
	"iter"
)

// texts are things that are shown by their text, which is made where it is asked for.
type texts[T fmt.Stringer] []T

// texts returns what is shown.
func (t texts[T]) texts() []string {
	out := make([]string, len(t))
	for i := range t {
		out[i] = t[i].String()
	}
	return out
}

// MarshalJSON implements json.Marshaler.
func (t texts[T]) MarshalJSON() ([]byte, error) { return json.Marshal(t.texts()) }

// length2 says how many pairs a sequence has.
func length2[K, V any](all iter.Seq2[K, V]) (n int) {
	for range all {
		n++
	}
	return n
}
