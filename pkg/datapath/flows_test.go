package datapath

import "testing"

func TestRoomForFlowsIsAShareOfMemory(t *testing.T) {
	const gib = 1 << 30
	for memory, want := range map[uint64]uint32{
		0:              1 << 16,
		gib:            1 << 16,
		4 * gib:        1 << 16,
		7 * gib:        1 << 17,
		156 * gib / 10: 1 << 18, // what is left of 16
		16 * gib:       1 << 18,
		20 * gib:       1 << 18,
		28 * gib:       1 << 19,
		64 * gib:       1 << 20,
		4096 * gib:     1 << 22,
		1<<64 - 1:      1 << 22,
		256*gib - 1:    1 << 22,
		128*gib + 99:   1 << 21,
	} {
		if got := flowsFor(memory); got != want {
			t.Errorf("%d bytes have room for %d, want %d", memory, got, want)
		}
	}
}
