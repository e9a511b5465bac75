package agent

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/maglev"
	"github.com/headgate/headgate/pkg/peers"
	"github.com/headgate/headgate/pkg/statefile"
)

// policy returns how Services are balanced that leave it open.
func (c Config) policy() lb.Policy {
	algorithm, _ := lb.ParseAlgorithm(c.Algorithm)
	return lb.Policy{Algorithm: algorithm, Steering: lb.Steering{PassiveHealth: lb.SwitchTo(!c.IgnoreHealth)}}
}

// minSecret is the least number of bytes in a file with a secret.
const minSecret = 16

// hashKey returns the key of the hashes of flows: that of --hash-key-file, which all nodes have, or else
// one of this node alone. A key of the node that the next start does not find is a problem, and no error.
func (c Config) hashKey() (maglev.Key, []lb.Problem, error) {
	if c.HashKeyFile != "" {
		secret, err := readSecret(c.HashKeyFile)
		if err != nil {
			return maglev.Key{}, nil, fmt.Errorf("--hash-key-file: %w; name a file with at least %d random bytes, the same on all nodes (in the DaemonSet the key `key` of the Secret headgate-hash-key)", err, minSecret)
		}
		return maglev.KeyOf(secret), nil, nil
	}
	secret, err := c.ownSecret()
	if err == nil {
		return maglev.KeyOf(secret), nil, nil
	}
	return maglev.KeyOf(secret), []lb.Problem{{
		Scope: lb.ScopeNode, Object: "the node", Field: c.stateFile(hashKeyFile), Reason: "does not keep the key of hashes, so each start of the agent has another key: " + err.Error(),
		Remedy: "remove the file if it is there, make its directory writable, and start the agent anew",
	}}, nil
}

// carryKeys returns the keys of proofs: the lines of --dsr-key-file, else the secret of --hash-key-file. The
// node proves by the first one, and accepts both.
func (c Config) carryKeys() (keys [2][2]uint64, err error) {
	if c.DSRKeyFile == "" {
		secret, err := readSecret(c.HashKeyFile)
		key := peers.ProofKey(secret)
		return [2][2]uint64{key, key}, err
	}
	if keys, err = readKeys(c.DSRKeyFile); err != nil {
		err = fmt.Errorf("--dsr-key-file: %w; name a file with one or two keys of at least %d bytes, a line each", err, minSecret)
	}
	return keys, err
}

// readKeys returns the keys of proofs in a file, whose lines are secrets: one twice, or two.
func readKeys(path string) (keys [2][2]uint64, err error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return keys, err
	}
	lines := bytes.Split(bytes.TrimSpace(content), []byte("\n"))
	if len(lines) > len(keys) {
		return keys, fmt.Errorf("%s has %d lines", path, len(lines))
	}
	for i, line := range lines {
		line = bytes.TrimSpace(line)
		if len(line) < minSecret {
			return keys, fmt.Errorf("%s has a key of %d bytes in line %d and needs %d", path, len(line), i+1, minSecret)
		}
		key := peers.ProofKey(line)
		keys[i], keys[1] = key, key
	}
	return keys, nil
}

// CheckKeys says why the agent would not start with --hash-key-file and --dsr-key-file.
func (c Config) CheckKeys() error {
	if c.HashKeyFile != "" {
		if _, _, err := c.hashKey(); err != nil {
			return err
		}
	}
	if !c.Forwarding.Carries() {
		return nil
	}
	_, err := c.carryKeys()
	return err
}

// readSecret returns the secret in a file.
func readSecret(path string) ([]byte, error) {
	secret, err := os.ReadFile(path)
	if secret = bytes.TrimSpace(secret); err == nil && len(secret) < minSecret {
		err = fmt.Errorf("%s has %d bytes and needs %d", path, len(secret), minSecret)
	}
	return secret, err
}

// ownSecret returns the secret that the first agent of the node has made. If the next agent gets another one,
// the error says why.
func (c Config) ownSecret() ([]byte, error) {
	made := []byte(rand.Text() + rand.Text()) // 260 random bits
	if c.StateDir == "" {
		return made, nil
	}
	path := c.stateFile(hashKeyFile)
	kept, err := readSecret(path)
	if errors.Is(err, fs.ErrNotExist) {
		if err = statefile.Make(path, append(made, '\n')); err == nil {
			return made, nil
		}
		if errors.Is(err, fs.ErrExist) { // another agent was first
			kept, err = readSecret(path)
		}
	}
	if err != nil {
		return made, err
	}
	return kept, nil
}
