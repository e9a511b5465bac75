package peers

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"

	"github.com/headgate/headgate/pkg/maglev"
)

// Port is the UDP port at which agents answer unless told otherwise.
const Port = 6635

// version is that of what is carried, and of the questions: nodes carry to those alone that take theirs.
const version = 5

// Digest is equal on nodes that carry alike.
type Digest [16]byte

// DigestOf returns the digest of the key by which nodes hash.
func DigestOf(key [2]uint64) (d Digest) {
	b := []byte("headgate carries as of version ")
	for _, word := range [...]uint64{version, key[0], key[1]} {
		b = binary.BigEndian.AppendUint64(b, word)
	}
	sum := sha256.Sum256(b)
	copy(d[:], sum[:])
	return d
}

// digest is that of how this node carries.
func (p *Prober) digest() Digest { return DigestOf(p.cfg.Key) }

// digestFor returns the digest that answers a question with one: that, if this node takes what its
// sender carries, else none. A sender without the key does not get what proves it.
func (p *Prober) digestFor(theirs Digest) Digest {
	if theirs == p.digest() {
		return theirs
	}
	return Digest{}
}

// ProofKey returns the key of proofs (bpf/carry/proof.h) that follows from a secret of all nodes.
func ProofKey(secret []byte) [2]uint64 { return maglev.KeyFor("headgate proof key", secret) }

// kind is what a message is.
type kind byte

const (
	question kind = 'q'
	answer   kind = 'a' // of a node whose datapath sends no echoes back
	echoes   kind = 'e' // of one whose datapath does; earlier versions send both, this one first
)

// message is a datagram: magic, kind, nonce (big endian), digest. A question has one
// answer, which is as long, so that nobody gets more than was sent.
type message struct {
	kind   kind
	nonce  uint64 // of the question
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
	return m, bytes.IndexByte([]byte{byte(question), byte(answer), byte(echoes)}, byte(m.kind)) >= 0
}
