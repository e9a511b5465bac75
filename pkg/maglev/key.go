// Package maglev fills tables for consistent hashing: a flow's hash is an index,
// and the slot there names its backend. Two ways to fill are here. Maglev is that
// of the paper (Eisenbud et al., NSDI 2016). Stable gives every slot the backend
// that ranks highest there, up to a bound on each backend's share: when a backend
// comes or goes fewer slots change, and shares differ by up to two percent.
//
// A table depends on nothing but the set of backends, their weights, its size and
// a key, whatever the order in which they are given: nodes that know the same have
// the same table. It is pure, standard library only.
package maglev

import (
	"crypto/sha256"
	"encoding/binary"
)

// Key makes hashes unpredictable for those who do not know it. All nodes of a
// cluster must have the same.
type Key [2]uint64

// KeyOf returns the key of hashes that follows from a secret of any length.
func KeyOf(secret []byte) Key { return KeyFor("headgate hash key", secret) }

// KeyFor returns the key for a purpose that follows from a secret of any length. No key tells
// anything of that for another purpose.
func KeyFor(purpose string, secret []byte) Key {
	sum := sha256.Sum256(append([]byte(purpose+"\x00"), secret...))
	return Key{binary.LittleEndian.Uint64(sum[:]), binary.LittleEndian.Uint64(sum[8:])}
}
