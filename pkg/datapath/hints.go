package datapath

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/bits"
	"sync/atomic"
	"unsafe"
)

// Maps that save programs a look-up that would find nothing.
const (
	storedSockets = "stored_sockets"
	addressFilter = "address_filter"
	flowFilter    = "flow_filter"
)

// hints are these maps, with the number that each of their words has where nobody
// knows what is true: programs look then. Made for other programs, or in
// another size, they say nothing; so they are shared or doubted, but never copied.
// What address_filter says is known from other maps.
var hints = map[string]uint64{
	storedSockets: 1<<30 | 1<<62, // of two counts; they are never counted down to zero
	flowFilter:    ^uint64(0),
}

// countsPerChunk is how many slots of entries come in one element of
// stored_sockets.
const countsPerChunk = uint32(len(headgateStoredSockets{}.Sockets))

// storedChunks returns how many elements that map has, for so many entries.
func storedChunks(entries uint32) uint32 {
	return max(1, entries/countsPerChunk)
}

// doubt says of all that a map tells that it is not known.
func (s *mapSet) doubt(name string, word uint64) error {
	m := s.byName[name]
	if m == nil {
		return nil
	}
	value := bytes.Repeat(binary.LittleEndian.AppendUint64(nil, word), int(m.ValueSize())/8)
	for i := range m.MaxEntries() {
		if err := m.Put(i, value); err != nil {
			return fmt.Errorf("write map %s: %w", name, err)
		}
	}
	return nil
}

// doubtEnds doubts which ends flows have if those of another set, which are taken
// along, are not noted in the map of this one.
func (d *Datapath) doubtEnds(from *mapSet) error {
	if from == nil || from.byName[flowTableMap] == nil {
		return nil
	}
	if noted := from.byName[flowFilter]; noted != nil && sameMap(noted, d.maps.byName[flowFilter]) {
		return nil
	}
	return d.maps.doubt(flowFilter, hints[flowFilter])
}

// knowAddress notes that an address may mean something. Programs look for it from then on,
// so this comes before what there is to be found.
func (s *mapSet) knowAddress(a headgateIpAddr, kind headgateAddressKind) error {
	s.know(filterHash(a))
	if kind&headgateAddressKindADDRESS_NODE == 0 || s.filter == nil {
		return nil
	}
	for quarter, has := range s.nodePorts()[decodeAddr(a).Is4()] {
		if has {
			s.know(answerHash(a, uint16(quarter)<<quarterShift))
		}
	}
	return nil
}

// knowFrontend does the same for a frontend: for its address, and for what may answer at an address of the
// node. A NodePort answers at all of these, and some are those of load balancers or external ones.
func (s *mapSet) knowFrontend(at headgateAddrPort, flags headgateFrontendFlag) error {
	s.know(filterHash(at.Addr))
	addr, port := decodeAddr(at.Addr), swapPort(at.Port)
	if flags&(headgateFrontendFlagFRONTEND_LOAD_BALANCER|headgateFrontendFlagFRONTEND_EXTERNAL_IP) != 0 {
		s.know(answerHash(at.Addr, port))
	}
	if !addr.IsUnspecified() {
		return nil
	}
	if has := &s.nodePorts()[addr.Is4()][port>>quarterShift]; !*has {
		*has = true
		if err := s.knowAddresses(); err != nil {
			*has = false
			return err
		}
	}
	return nil
}

// knowAddresses notes all addresses.
func (s *mapSet) knowAddresses() error {
	return walk(s.byName["addresses"], func(a *headgateIpAddr, kind *headgateAddress) error {
		return s.knowAddress(*a, kind.Kind)
	})
}

// A quarter of all ports, as end_hash of bpf/lib/filter.h takes them.
const quarterShift = 14

// nodePorts returns in which quarters of the ports there are NodePorts, for IPv4 (true) and IPv6.
func (s *mapSet) nodePorts() map[bool]*[4]bool {
	if s.quarters == nil {
		s.quarters = map[bool]*[4]bool{true: {}, false: {}}
		for place := range s.frontends.len {
			at := s.frontends.at(place).At
			if addr := decodeAddr(at.Addr); isFrontend(at) && addr.IsUnspecified() {
				s.quarters[addr.Is4()][swapPort(at.Port)>>quarterShift] = true
			}
		}
	}
	return s.quarters
}

// know sets the bit of a hash.
func (s *mapSet) know(hash uint32) {
	if s.filter == nil {
		return
	}
	bit := hash >> filterShift(s.filter.len)
	const words = uint32(len(headgateFilterChunk{}.Word))
	atomic.OrUint64(&s.filter.at(bit / 64 / words).Word[bit/64%words], 1<<(bit%64))
}

// bitsPerAddress is how many bits address_filter has for each address that there is room for: at
// three quarters 1.2 % are set, and so many foreign addresses are looked up for nothing.
const bitsPerAddress = 64

// chunkBits is how many bits come in one element.
const chunkBits = uint32(unsafe.Sizeof(headgateFilterChunk{}) * 8)

// filterChunks returns how many elements address_filter has: no fewer bits than flow_filter.
func filterChunks(addresses uint32) uint32 {
	chunks := uint32(1<<headgateFilterHashFILTER_BITS) / chunkBits
	for chunks*chunkBits < 1<<31 && uint64(chunks)*uint64(chunkBits) < uint64(addresses)*bitsPerAddress {
		chunks *= 2
	}
	return chunks
}

// filterShift returns how many bits of a hash do not say which bit of so many chunks it is.
func filterShift(chunks uint32) uint32 {
	return uint32(bits.LeadingZeros32(chunks*chunkBits - 1))
}

// knowAll notes all frontends and addresses that there are: the filter may be new, or of other programs.
func (s *mapSet) knowAll() error {
	if s.filter == nil {
		return nil
	}
	for place := range s.frontends.len {
		if f := s.frontends.at(place); isFrontend(f.At) {
			if err := s.knowFrontend(f.At, f.Flags); err != nil {
				return err
			}
		}
	}
	return s.knowAddresses()
}

// answerHash is the hash of answer_filter_has of bpf/lib/filter.h.
func answerHash(a headgateIpAddr, port uint16) uint32 {
	return filterHash(a) + (uint32(port>>quarterShift)+1)*uint32(headgateFilterHashFILTER_FACTOR_3)
}

// filterHash is filter_hash of bpf/lib/filter.h.
func filterHash(a headgateIpAddr) uint32 {
	sum := uint32(0)
	for i, factor := range [len(a.Word)]headgateFilterHash{
		headgateFilterHashFILTER_FACTOR_0, headgateFilterHashFILTER_FACTOR_1, headgateFilterHashFILTER_FACTOR_2, headgateFilterHashFILTER_FACTOR_3,
	} {
		sum += a.Word[i] * uint32(factor)
	}
	return sum
}
