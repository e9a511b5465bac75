package agent

import (
	"bytes"
	"fmt"
	"os"

	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/maglev"
	"github.com/headgate/headgate/pkg/source/kube"
)

// policy returns how Services are balanced that leave it open.
func (c Config) policy() lb.Policy {
	algorithm, _ := lb.ParseAlgorithm(c.Algorithm)
	return lb.Policy{Algorithm: algorithm, Steering: lb.Steering{PassiveHealth: lb.SwitchTo(!c.IgnoreHealth)}}
}

// hashKey returns the key of the hashes of flows, on which all nodes agree. What
// they have in common without being told is the certificate authority of their
// cluster. Who can read that can tell how flows are spread; a file that only
// nodes can read keeps it to them.
func (c Config) hashKey() (maglev.Key, error) {
	switch {
	case c.HashKeyFile != "":
		secret, err := os.ReadFile(c.HashKeyFile)
		if err != nil {
			return maglev.Key{}, fmt.Errorf("--hash-key-file: %w; name a file with at least 16 random bytes, the same on all nodes", err)
		}
		if secret = bytes.TrimSpace(secret); len(secret) < 16 {
			return maglev.Key{}, fmt.Errorf("--hash-key-file %s: %d bytes; write at least 16 random ones, the same on all nodes", c.HashKeyFile, len(secret))
		}
		return maglev.KeyOf(secret), nil
	case c.Manifests != "":
		return maglev.KeyOf(nil), nil
	default:
		authority, err := kube.CertificateAuthority(c.Kube)
		return maglev.KeyOf(authority), err
	}
}
