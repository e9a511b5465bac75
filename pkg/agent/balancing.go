package agent

import (
	"bytes"
	"fmt"
	"os"

	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/maglev"
	"github.com/headgate/headgate/pkg/source/kube"
)

// isAlgorithm says whether an algorithm has the name; "" is the usual one.
func isAlgorithm(name string) bool {
	_, ok := lb.ParseAlgorithm(name)
	return ok || name == ""
}

// algorithm returns that of Services which name none.
func (c Config) algorithm() lb.Algorithm {
	a, ok := lb.ParseAlgorithm(c.Algorithm)
	if !ok {
		return lb.Random
	}
	return a
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
			return maglev.Key{}, fmt.Errorf("--hash-key-file: %w", err)
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
