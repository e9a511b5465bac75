package agent

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/headgate/headgate/pkg/maglev"
	"github.com/headgate/headgate/pkg/peers"
	"github.com/headgate/headgate/pkg/source/kube"
)

// mustKey returns the key of a configuration, and the only problem with it, "" for none.
func mustKey(tb testing.TB, cfg Config) (key maglev.Key, problem string) {
	tb.Helper()
	key, problems, err := cfg.hashKey()
	if err != nil || len(problems) > 1 {
		tb.Fatalf("problems %v, error %v", problems, err)
	}
	for _, p := range problems {
		problem = p.Error()
	}
	return key, problem
}

func TestTheKeyOfHashesIsThatOfAFile(t *testing.T) {
	for _, tc := range []struct{ name, content, says string }{
		{"16 bytes", "0123456789abcdef", ""},
		{"more, in a line", "0123456789abcdef0123456789abcdef\n", ""},
		{"15 bytes in a line", "0123456789abcde\n", "has 15 bytes and needs 16; name a file"},
		{"nothing", "", "has 0 bytes and needs 16; name a file"},
		{"no file", "-", "no such file or directory; name a file"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			cfg := Config{HashKeyFile: filepath.Join(t.TempDir(), "key"), StateDir: t.TempDir()}
			if tc.content != "-" {
				mustWrite(t, cfg.HashKeyFile, tc.content)
			}
			key, problems, err := cfg.hashKey()
			if tc.says == "" && (err != nil || key != maglev.KeyOf([]byte(strings.TrimSpace(tc.content)))) {
				t.Errorf("key %x, error %v", key, err)
			}
			if tc.says != "" && (err == nil || !strings.Contains(err.Error(), tc.says) || !strings.HasPrefix(err.Error(), "--hash-key-file: ")) {
				t.Errorf("error %v, want one with %q", err, tc.says)
			}
			if made, _ := filepath.Glob(filepath.Join(cfg.StateDir, "*")); len(problems)+len(made) > 0 {
				t.Errorf("problems %v, files %v", problems, made)
			}
		})
	}
}

func TestANodeKeepsTheKeyOfHashesThatItMakes(t *testing.T) {
	node := Config{StateDir: filepath.Join(t.TempDir(), "state")}
	first, problem := mustKey(t, node)
	again, problemAgain := mustKey(t, node)
	if first != again || problem+problemAgain != "" {
		t.Errorf("the second start has another key, or a problem: %q %q", problem, problemAgain)
	}
	file := filepath.Join(node.StateDir, hashKeyFile)
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 || info.Size() < 32 {
		t.Errorf("%s: %v, %v", file, info, err)
	}
	if files, err := StateFiles(node.StateDir); err != nil || len(files) != 1 || files[0] != file {
		t.Errorf("files %v, %v; want the key alone", files, err)
	}
	if other, _ := mustKey(t, Config{StateDir: t.TempDir()}); other == first {
		t.Error("two nodes have the same key")
	}
	if none, problem := mustKey(t, Config{}); none == first || none == maglev.KeyOf(nil) || problem != "" {
		t.Errorf("without a state directory the key is %x, problem %q", none, problem)
	}
}

// Pods can read the certificate authority of the cluster and the manifests.
func TestTheKeyOfANodeFollowsFromNothingThatPodsHave(t *testing.T) {
	ca := filepath.Join(t.TempDir(), "ca.crt")
	mustWrite(t, ca, "-----BEGIN CERTIFICATE-----\n")
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	mustWrite(t, kubeconfig, `apiVersion: v1
kind: Config
clusters: [{name: a, cluster: {server: "https://192.0.2.1:6443", certificate-authority: `+ca+`}}]
contexts: [{name: a, context: {cluster: a}}]
current-context: a
`)
	had := map[maglev.Key]bool{maglev.KeyOf(nil): true, maglev.KeyOf([]byte("-----BEGIN CERTIFICATE-----")): true}
	for _, cfg := range []Config{{Kube: kube.Config{Kubeconfig: kubeconfig}}, {Manifests: t.TempDir()}} {
		for range 2 {
			cfg.StateDir = t.TempDir()
			key, _ := mustKey(t, cfg)
			if had[key] {
				t.Errorf("%+v gives a key that was there before", cfg)
			}
			had[key] = true
		}
	}
}

func TestAKeyOfHashesThatIsNotKeptIsAProblem(t *testing.T) {
	for _, tc := range []struct {
		name, says string
		spoil      func(t *testing.T, dir string)
	}{
		{"a damaged file", "hash-key has 3 bytes and needs 16; remove the file", func(t *testing.T, dir string) { mustWrite(t, filepath.Join(dir, hashKeyFile), "abc") }},
		{"a directory that cannot be made", "not a directory; remove the file", func(t *testing.T, dir string) {
			if err := os.Remove(dir); err != nil {
				t.Fatal(err)
			}
			mustWrite(t, dir, "")
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			node := Config{StateDir: t.TempDir()}
			tc.spoil(t, node.StateDir)
			first, problem := mustKey(t, node)
			if again, _ := mustKey(t, node); again == first || first == maglev.KeyOf(nil) {
				t.Errorf("the key is %x, and %x at the next start", first, again)
			}
			if !strings.Contains(problem, tc.says) || !strings.HasPrefix(problem, "the node: "+filepath.Join(node.StateDir, hashKeyFile)) {
				t.Errorf("the problem is %q", problem)
			}
		})
	}
}

func mustWrite(tb testing.TB, file, content string) {
	tb.Helper()
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		tb.Fatal(err)
	}
}

// Two agents that start at once on a new node have one key, which the next start finds.
func TestAgentsThatStartAtOnceHaveOneKey(t *testing.T) {
	for range 50 {
		c := Config{StateDir: t.TempDir()}
		var keys [3]maglev.Key
		var all sync.WaitGroup
		for i := range 2 {
			all.Go(func() { keys[i], _, _ = c.hashKey() })
		}
		all.Wait()
		if keys[2], _, _ = c.hashKey(); keys[0] != keys[2] || keys[1] != keys[2] {
			t.Fatalf("the agents have %x, the next one %x", keys[:2], keys[2])
		}
	}
}

func TestTheKeysOfCarryingAreLinesOfAFile(t *testing.T) {
	const first, second = "0123456789abcdef", "another key, longer"
	for _, tc := range []struct{ name, content, says string }{
		{"one", first + "\n", ""},
		{"two", first + " \r\n" + second, ""},
		{"a short one", "0123456789abcde", "has a key of 15 bytes in line 1 and needs 16; name a file"},
		{"a short second one", first + "\n0123", "has a key of 4 bytes in line 2 and needs 16; name a file"},
		{"an empty line between", first + "\n\n" + second, "has 3 lines; name a file"},
		{"three", first + "\n" + second + "\n" + first, "has 3 lines; name a file"},
		{"nothing", "", "has a key of 0 bytes in line 1 and needs 16; name a file"},
		{"no file", "-", "no such file or directory; name a file"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			cfg := Config{DSRKeyFile: filepath.Join(t.TempDir(), "key"), Forwarding: ForwardingDSR}
			if tc.content != "-" {
				mustWrite(t, cfg.DSRKeyFile, tc.content)
			}
			want := [2][2]uint64{peers.ProofKey([]byte(first)), peers.ProofKey([]byte(first))}
			if tc.name == "two" {
				want[1] = peers.ProofKey([]byte(second))
			}
			keys, err := cfg.carryKeys()
			if tc.says == "" && (err != nil || keys != want) {
				t.Errorf("keys %x, error %v, want %x", keys, err, want)
			}
			if tc.says != "" && (err == nil || !strings.Contains(err.Error(), tc.says) || !strings.HasPrefix(err.Error(), "--dsr-key-file: ")) {
				t.Errorf("error %v, want one with %q", err, tc.says)
			}
			if checked := cfg.CheckKeys(); (checked == nil) != (err == nil) {
				t.Errorf("headgate check says %v, the agent %v", checked, err)
			}
		})
	}
}

// The key of proofs follows from the secret of hashes by default, and is another one.
func TestTheSecretOfHashesIsThatOfCarryingByDefault(t *testing.T) {
	cfg := Config{HashKeyFile: filepath.Join(t.TempDir(), "key"), Forwarding: ForwardingMarked}
	mustWrite(t, cfg.HashKeyFile, "0123456789abcdef\n")
	keys, err := cfg.carryKeys()
	if key := peers.ProofKey([]byte("0123456789abcdef")); err != nil || keys != [2][2]uint64{key, key} || maglev.Key(key) == maglev.KeyOf([]byte("0123456789abcdef")) {
		t.Errorf("keys %x, error %v", keys, err)
	}
}
