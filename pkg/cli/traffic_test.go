package cli

import "testing"

// A backend that was away for a look is a new one, as is one that has the ID of another.
func TestConnectionsAreThoseOfTheLookBefore(t *testing.T) {
	type seen map[uint32]uint64
	var c countedBackends
	for i, look := range []struct {
		known     bool
		now, want seen
	}{
		{false, seen{1: 10, 3: 30, 4: 40}, seen{1: 0, 3: 0, 4: 0}},
		{true, seen{1: 11, 2: 21, 3: 31, 4: 41}, seen{1: 10, 2: 0, 3: 30, 4: 40}},
		{true, seen{2: 22}, seen{2: 21}},
		{true, seen{1: 13, 2: 23, 4: 43}, seen{1: 0, 2: 22, 4: 0}},
		{false, seen{1: 14, 4: 44}, seen{1: 0, 4: 0}}, // nobody has seen the look before
	} {
		c.begin(look.known)
		for id := range uint32(5) {
			n, there := look.now[id]
			if !there {
				continue
			}
			if was := c.replace(id, counted{connections: n}).connections; was != look.want[id] {
				t.Errorf("look %d: backend %d had %d, want %d", i, id, was, look.want[id])
			}
		}
		c.end()
	}
}
