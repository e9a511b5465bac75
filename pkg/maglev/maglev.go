package maglev

import (
	"cmp"
	"math/big"
	"slices"
)

// Backend is one of those that a table names.
type Backend struct {
	Name   string // tells it from all others, the same on every node
	Weight uint32 // its share of the slots, in relation to the others; never 0
}

// ranked is a backend in the order in which tables are filled, which depends on
// names and the key alone.
type ranked struct {
	index  uint32 // among those given
	weight uint64
	hash   uint64
}

// rank sorts backends by the hashes of their names.
func rank(key Key, backends []Backend) (out []ranked, heaviest, sum uint64) {
	out = make([]ranked, len(backends))
	for i, b := range backends {
		out[i] = ranked{uint32(i), uint64(max(b.Weight, 1)), key.hash(b.Name)}
		heaviest = max(heaviest, out[i].weight)
		sum += out[i].weight
	}
	slices.SortFunc(out, func(a, b ranked) int {
		return cmp.Or(cmp.Compare(a.hash, b.hash), cmp.Compare(backends[a.index].Name, backends[b.index].Name))
	})
	return out, heaviest, sum
}

// free is a slot that no backend has yet.
const free = ^uint32(0)

// Fill returns a table of size slots, each the index of a backend, filled as the
// paper has it: by turns, each backend takes the slot that it prefers among those
// that are free. Its preferences are a permutation of all slots: steps of its own if
// the size is prime, and otherwise, where such steps may never come to some slots, one
// slot after the other. The turns of a backend are as frequent as its weight says. No
// backends, or no slots, give no table.
func Fill(key Key, backends []Backend, size uint32) []uint32 {
	if len(backends) == 0 || size == 0 {
		return nil
	}
	order, heaviest, _ := rank(key, backends)
	table := make([]uint32, size)
	for i := range table {
		table[i] = free
	}
	next := make([]uint32, len(order)) // the slot that each prefers
	skip := make([]uint32, len(order))
	prime := big.NewInt(int64(size)).ProbablyPrime(0) // certain for numbers so small
	for i, b := range order {
		next[i] = uint32(b.hash % uint64(size))
		if skip[i] = 1; prime {
			skip[i] += uint32(mix(b.hash+golden) % uint64(size-1))
		}
	}
	credit := make([]uint64, len(order))
	for filled := uint32(0); ; {
		for i, b := range order {
			if credit[i] += b.weight; credit[i] < heaviest {
				continue
			}
			credit[i] -= heaviest
			for table[next[i]] != free {
				next[i] = step(next[i], skip[i], size)
			}
			table[next[i]] = b.index
			if filled++; filled == size {
				return table
			}
		}
	}
}

// step returns the slot that comes after one in a permutation.
func step(slot, skip, size uint32) uint32 {
	if slot >= size-skip {
		return slot - (size - skip)
	}
	return slot + skip
}
