package datapath

import "math/bits"

// briefFlows is how many flows may be brief at a time, of so many entries: a
// power of two. Each has two entries, so that they take a quarter at most.
func briefFlows(entries uint32) uint32 {
	return 1 << max(0, bits.Len32(entries/8)-1)
}
