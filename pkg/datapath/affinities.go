package datapath

import (
	"encoding/binary"
	"math"
	"net/netip"
)

// Affinity is what is remembered of a client of a Service with session affinity.
type Affinity struct {
	Client           netip.Addr
	Service, Backend uint32 // IDs
}

// Affinities calls do with every affinity, in no order, until it returns an error. Those of
// clients that have been silent for longer than their Service says are among them: they go
// when others need the room.
func (r *Reader) Affinities(do func(Affinity) error) error {
	return walk(r.maps.byName[affinitiesMap], func(k *headgateAffinityKey, v *headgateAffinity) error {
		return do(Affinity{Client: decodeAddr(k.Client), Service: k.Service, Backend: uint32(v.Had >> 32)})
	})
}

// Namespace returns the cookie of the network namespace that a client on this node is; 0 where
// it is elsewhere and has an address. See local_client in bpf/lb/client.h.
func (a Affinity) Namespace() uint64 {
	words := a.Client.As16()
	if binary.NativeEndian.Uint32(words[:]) != math.MaxUint32 {
		return 0
	}
	return uint64(binary.NativeEndian.Uint32(words[8:]))<<32 | uint64(binary.NativeEndian.Uint32(words[12:]))
}

// LocalClient is the inverse of it: the client that asks IPv4 addresses, or IPv6 ones, in the network namespace
// with a cookie.
func LocalClient(cookie uint64, ip4 bool) netip.Addr {
	var words [16]byte
	family := map[bool]uint32{true: 4, false: 6}[ip4]
	for i, word := range []uint32{math.MaxUint32, family, uint32(cookie >> 32), uint32(cookie)} {
		binary.NativeEndian.PutUint32(words[4*i:], word)
	}
	return netip.AddrFrom16(words)
}

// OwnNamespace returns the cookie of the network namespace of the calling thread.
func OwnNamespace() (uint64, error) { return netnsCookie() }
