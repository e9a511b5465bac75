package datapath

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/cilium/ebpf"
)

// row16 is an element of 16 bytes, of which a window has 4,096.
type row16 struct{ A, B uint64 }

// seldomOf returns a map of so many elements.
func seldomOf(tb testing.TB, elements uint32) *seldom[row16] {
	tb.Helper()
	m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 16, MaxEntries: elements, Flags: 1 << 10}) // BPF_F_MMAPABLE
	if err != nil {
		tb.Fatal(err)
	}
	s, err := newSeldom[row16](m)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { s.Close(); m.Close() })
	return s
}

// Elements are put one by one and in rows, at the edges of windows and behind each other's backs.
func TestWhatIsPutIntoAMapThatIsSeldomReadIsThere(t *testing.T) {
	const elements = 5*4096 + 7
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 1))
		s, want := seldomOf(t, elements), map[uint32]row16{}
		for n := range uint64(500) {
			i := rng.Uint32N(elements)
			for range 1 + rng.IntN(3)*rng.IntN(30) {
				want[i%elements] = row16{n + 1, ^n}
				if err := s.put(i%elements, row16{n + 1, ^n}); err != nil {
					t.Fatal(err)
				}
				i++
			}
			if at, err := s.at(i % elements); err != nil || *at != want[i%elements] {
				t.Fatalf("seed %d: element %d is %v in the window, want %v (error %v)", seed, i%elements, *at, want[i%elements], err)
			}
		}
		all, err := s.all(false)
		if err != nil {
			t.Fatal(err)
		}
		for i := range all.len {
			if *all.at(i) != want[i] {
				t.Fatalf("seed %d: element %d is %v, want %v", seed, i, *all.at(i), want[i])
			}
		}
		all.Close()
	}
}

func TestTheWindowMovesForWhatComesInARowOnly(t *testing.T) {
	s := seldomOf(t, 4*4096)
	for _, c := range []struct {
		element uint32
		window  uintptr // where it begins then
	}{
		{5, 0}, {3 * 4096, 0}, {2 * 4096, 0}, {7, 0}, {3*4096 + 1, 0}, {3*4096 + 2, 3 * seldomWindow}, {3*4096 + 3, 3 * seldomWindow},
	} {
		if err := s.put(c.element, row16{1, 1}); err != nil || s.from != c.window {
			t.Errorf("after element %d the window begins at %d, want %d (error %v)", c.element, s.from, c.window, err)
		}
	}
}

func TestAnyByteIsSet(t *testing.T) {
	for _, n := range []int{0, 1, 63, 4096} {
		mem := make([]byte, n)
		if isAnySet(mem) {
			t.Errorf("something is set in %d zeros", n)
		}
		for i := range mem {
			if mem[i] = 1; !isAnySet(mem) {
				t.Fatalf("byte %d of %d is not seen", i, n)
			}
			mem[i] = 0
		}
	}
}

// Elements in a row, as in the first picture, and everywhere, as those of single changes.
func BenchmarkPutSeldom(b *testing.B) {
	const elements = 1 << 20
	for _, step := range []uint32{1, 654_321} {
		b.Run(fmt.Sprintf("every %d", step), func(b *testing.B) {
			s := seldomOf(b, elements)
			for i := uint32(0); b.Loop(); i += step {
				if err := s.put(i%elements, row16{1, 2}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
