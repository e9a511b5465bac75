package packets

import (
	"encoding/binary"
	"math/bits"
	"net/netip"
)

// carryKeys are the keys of proofs of a fleet: the first one proves.
var carryKeys = [2][2]uint64{{0x0706050403020100, 0x0f0e0d0c0b0a0908}, {1, 2}}

// proofOf is the proof of a carried datagram by a key. It hashes the same fields as bpf/carry/proof.h.
func proofOf(key [2]uint64, src, dst netip.Addr, datagram []byte, ring byte) []byte {
	m := append(src.AsSlice(), dst.AsSlice()...)
	header, addrs, protocol, words4 := 20, datagram[12:20], datagram[9], datagram[0]&15
	if datagram[0]>>4 == 6 {
		header, addrs, protocol, words4 = 40, datagram[8:40], datagram[6], 0
	} else {
		ring |= 0x80
	}
	if src.Is4() {
		ring |= 0x40
	}
	behind := make([]byte, 4) // 0 in fragments of IPv4
	if len(datagram) >= header+4 && (header == 40 || binary.BigEndian.Uint16(datagram[6:])&0x3fff == 0) {
		copy(behind, datagram[header:])
	}
	m = append(append(append(m, addrs...), behind...), protocol, ring, words4)
	proof := binary.LittleEndian.AppendUint64(nil, sipHash13(key, m))
	proof[0] &= 0x0f
	return proof
}

// sipHash13 is SipHash with one round a word and three at the end (Aumasson and Bernstein, 2012).
func sipHash13(key [2]uint64, m []byte) uint64 {
	v := [4]uint64{key[0] ^ 0x736f6d6570736575, key[1] ^ 0x646f72616e646f6d, key[0] ^ 0x6c7967656e657261, key[1] ^ 0x7465646279746573}
	round := func() {
		v[0] += v[1]
		v[2] += v[3]
		v[1] = bits.RotateLeft64(v[1], 13) ^ v[0]
		v[3] = bits.RotateLeft64(v[3], 16) ^ v[2]
		v[0] = bits.RotateLeft64(v[0], 32) + v[3]
		v[2] += v[1]
		v[1] = bits.RotateLeft64(v[1], 17) ^ v[2]
		v[3] = bits.RotateLeft64(v[3], 21) ^ v[0]
		v[2] = bits.RotateLeft64(v[2], 32)
	}
	last := append(make([]byte, 0, 8), m[len(m)&^7:]...)
	last = append(last, make([]byte, 7-len(last))...)
	last = append(last, byte(len(m)))
	for _, word := range append(words(m[:len(m)&^7]), words(last)...) {
		v[3] ^= word
		round()
		v[0] ^= word
	}
	v[2] ^= 0xff
	for range 3 {
		round()
	}
	return v[0] ^ v[1] ^ v[2] ^ v[3]
}

func words(b []byte) (out []uint64) {
	for ; len(b) > 0; b = b[8:] {
		out = append(out, binary.LittleEndian.Uint64(b))
	}
	return out
}
