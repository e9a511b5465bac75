package peers

import (
	"bytes"
	"testing"
)

func TestDigestsAreOfTheWholeKey(t *testing.T) {
	seen := map[Digest][2]uint64{}
	for _, key := range [][2]uint64{{}, {1}, {0, 1}, {1, 1}} {
		d := DigestOf(key)
		if other, there := seen[d]; there {
			t.Errorf("%v and %v have one digest", key, other)
		}
		seen[d] = key
	}
}

func FuzzMessage(f *testing.F) {
	for _, k := range []kind{question, answer, echoes, 'x'} {
		f.Add(message{k, 7, Digest{1, 2, 3}}.encode())
	}
	f.Add([]byte{})
	f.Add(magic)
	f.Fuzz(func(t *testing.T, b []byte) {
		if m, ok := decode(b); ok && !bytes.Equal(m.encode(), b) {
			t.Errorf("%x is read as %+v, which is %x", b, m, m.encode())
		}
	})
}
