package peers

import (
	"encoding/binary"
	"fmt"

	"github.com/headgate/headgate/pkg/maglev"
)

// Port is the UDP port of carried packets and of echoes.
const Port = 6635

// version is that of what is carried, and of echoes: nodes carry to those alone that take theirs.
const version = 6

// Alike returns what is equal on nodes that carry alike: they have the same version and key of hashes.
func Alike(hashKey maglev.Key) uint64 {
	key := binary.LittleEndian.AppendUint64(nil, hashKey[0])
	key = binary.LittleEndian.AppendUint64(key, hashKey[1])
	return maglev.KeyFor(fmt.Sprintf("headgate carries as of version %d", version), key)[0]
}

// ProofKey returns the key of proofs (bpf/carry/proof.h) that follows from a secret of all nodes.
func ProofKey(secret []byte) [2]uint64 { return maglev.KeyFor("headgate proof key", secret) }
