package peers

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"

	"github.com/headgate/headgate/pkg/maglev"
)

// Port is the UDP port at which agents answer unless told otherwise.
const Port = 6635

// Versions of what is carried, and of the questions: nodes carry to those alone that take theirs.
const (
	versionIPIP = 2 // IP in IP
	versionUDP  = 5 // the same behind an outer header of UDP with a proof
)

// Digest is equal on nodes that carry alike.
type Digest [16]byte

// DigestOf returns the digest of the key by which nodes hash, of one that carries IP in IP, or behind
// outer headers of UDP.
func DigestOf(key [2]uint64, udp bool) (d Digest) {
	version := uint64(versionIPIP)
	if udp {
		version = versionUDP
	}
	b := []byte("headgate carries as of version ")
	for _, word := range [...]uint64{version, key[0], key[1]} {
		b = binary.BigEndian.AppendUint64(b, word)
	}
	sum := sha256.Sum256(b)
	copy(d[:], sum[:])
	return d
}

// ProofKey returns the key of proofs (bpf/carry/proof.h) that follows from a secret of all nodes.
func ProofKey(secret []byte) [2]uint64 { return maglev.KeyFor("headgate proof key", secret) }

// kind is what a message is.
type kind byte

const (
	question kind = 'q'
	answer   kind = 'a' // of a node whose datapath sends no echoes back
	echoes   kind = 'e' // of one whose datapath does; earlier versions send both, this one first
	echo     kind = 'b' // what a datapath sends back
)

// message is a datagram: magic, kind, nonce (big endian), digest. A question has one
// answer, which is as long, so that nobody gets more than was sent.
type message struct {
	kind   kind
	nonce  uint64 // of the question; of an echo see path
	digest Digest
}

var magic = []byte("headgate peer\x00")

// messageLen is how long a message is, in bytes.
var messageLen = len(magic) + 1 + 8 + len(Digest{})

func (m message) encode() []byte {
	b := append(bytes.Clone(magic), byte(m.kind))
	b = binary.BigEndian.AppendUint64(b, m.nonce)
	return append(b, m.digest[:]...)
}

// decode reads a message; false where it is none.
func decode(b []byte) (m message, ok bool) {
	if len(b) != messageLen || !bytes.HasPrefix(b, magic) {
		return m, false
	}
	b = b[len(magic):]
	m.kind, m.nonce = kind(b[0]), binary.BigEndian.Uint64(b[1:])
	copy(m.digest[:], b[9:])
	return m, bytes.IndexByte([]byte{byte(question), byte(answer), byte(echoes), byte(echo)}, byte(m.kind)) >= 0
}
