package datapath

import "testing"

// TestNeighboursAreSpread has a client with consecutive ports. A table that they fill to
// three fifths has a way for almost every one, whatever its factors: 2 of 1,000 find their
// two sets full.
func TestNeighboursAreSpread(t *testing.T) {
	now := mustClock(t)
	for range 100 {
		const flows = 14_000
		table, full := someTable(2*flows*5/3), 0
		for i := range uint32(flows) {
			f := someFlow(i, 1)
			f.SrcPort = uint16(i>>8 | i<<8) // network byte order
			f.ToSrcPort = f.SrcPort
			for _, direction := range []*headgateFlow{f, reply(f)} {
				if !table.add(direction, stateOf(now, 0, flagSeen), now) {
					full++
				}
			}
		}
		if full > 2*flows/100 {
			t.Errorf("of %d directions %d find no room", 2*flows, full)
		}
	}
}
