package datapath

import (
	"sync/atomic"
	"unsafe"
)

// writeName names a Service port, "" for none. The first letters go first and come last:
// while it is being written, or if the agent dies meanwhile, there is no name.
func writeName(at *headgateService, name string) {
	var to headgateService
	encodeString(to.Name[:], name)
	atomic.StoreUint32(firstLetters(at), 0)
	copy(at.Name[4:], to.Name[4:])
	at.Drops, at.Connections, at.Traffic, at.ConnectTimes = to.Drops, to.Connections, to.Traffic, to.ConnectTimes
	atomic.StoreUint32(firstLetters(at), *firstLetters(&to))
}

// readName returns the name of a Service port, "" for none. One that changes meanwhile is
// read again: what two looks agree on is whole, unless two writes began beside them, which
// the number of writes tells.
func readName(s *headgateService, writes *uint64) string {
	for {
		began := atomic.LoadUint64(writes)
		name := s.Name
		if !isNamed(s) {
			return ""
		}
		if s.Name == name && atomic.LoadUint64(writes) == began {
			return decodeString(name[:])
		}
	}
}

// isNamed says whether there is a Service port.
func isNamed(s *headgateService) bool { return atomic.LoadUint32(firstLetters(s)) != 0 }

// firstLetters are the first four of a name, 0 where there is none.
func firstLetters(s *headgateService) *uint32 { return (*uint32)(unsafe.Pointer(&s.Name)) }
