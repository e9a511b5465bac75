package maglev

import (
	"encoding/binary"
	"math/bits"
)

// hash returns SipHash-2-4 of a name (Aumasson and Bernstein, 2012).
func (k Key) hash(name string) uint64 {
	v := [4]uint64{k[0] ^ 0x736f6d6570736575, k[1] ^ 0x646f72616e646f6d, k[0] ^ 0x6c7967656e657261, k[1] ^ 0x7465646279746573}
	length := len(name)
	for ; len(name) >= 8; name = name[8:] {
		sipWord(&v, binary.LittleEndian.Uint64([]byte(name[:8])))
	}
	last := uint64(length) << 56
	for i := range len(name) {
		last |= uint64(name[i]) << (8 * i)
	}
	sipWord(&v, last)
	v[2] ^= 0xff
	for range 4 {
		sipRound(&v)
	}
	return v[0] ^ v[1] ^ v[2] ^ v[3]
}

func sipWord(v *[4]uint64, word uint64) {
	v[3] ^= word
	sipRound(v)
	sipRound(v)
	v[0] ^= word
}

func sipRound(v *[4]uint64) {
	v[0] += v[1]
	v[1] = bits.RotateLeft64(v[1], 13) ^ v[0]
	v[0] = bits.RotateLeft64(v[0], 32)
	v[2] += v[3]
	v[3] = bits.RotateLeft64(v[3], 16) ^ v[2]
	v[0] += v[3]
	v[3] = bits.RotateLeft64(v[3], 21) ^ v[0]
	v[2] += v[1]
	v[1] = bits.RotateLeft64(v[1], 17) ^ v[2]
	v[2] = bits.RotateLeft64(v[2], 32)
}

// mix is the finaliser of SplitMix64 (Steele, Lea and Flood, 2014): it makes of
// numbers that count up such that look random.
func mix(x uint64) uint64 {
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	return x ^ x>>31
}

// golden is 2^64 divided by the golden ratio: the step of SplitMix64.
const golden = 0x9e3779b97f4a7c15
