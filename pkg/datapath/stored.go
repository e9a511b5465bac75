package datapath

import (
	"fmt"
)

// storedSockets is the map that says, for each slot of the promises, how many
// sockets keep promises with themselves.
const storedSockets = "stored_sockets"

// countsPerChunk is how many slots come in one element of that map.
const countsPerChunk = uint32(len(headgateStoredSockets{}.Sockets))

// storedChunks returns how many elements that map has, for so many promises.
func storedChunks(promises uint32) uint32 {
	return max(1, promises/countsPerChunk)
}

// unknownSockets stands for a number of sockets that nobody has counted. It is
// never counted down to zero.
const unknownSockets = 1 << 30

// doubtStored says of all slots that sockets may keep promises with themselves:
// they made them while the map was not there, or had another size.
func (s *mapSet) doubtStored() error {
	m := s.byName[storedSockets]
	if m == nil {
		return nil
	}
	var doubt headgateStoredSockets
	for i := range doubt.Sockets {
		doubt.Sockets[i] = unknownSockets
	}
	for i := range m.MaxEntries() {
		if err := m.Put(i, doubt); err != nil {
			return fmt.Errorf("write map %s: %w", storedSockets, err)
		}
	}
	return nil
}
