package network

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestTheKeyOfCarryingIsReplaced replaces the key of proofs node by node under open connections. Nodes first
// accept the new key, then prove by it, then drop the former one. A new key at once breaks connections.
func TestTheKeyOfCarryingIsReplaced(t *testing.T) {
	const former, next = "the same at all nodes, and long enough", "another one at all nodes, and as long"
	for _, c := range []struct {
		what   string
		stages [][]string
		breaks bool
	}{
		{"both keys are accepted meanwhile", [][]string{{former, next}, {next, former}, {next}}, false},
		{"one key is accepted", [][]string{{next}}, true},
	} {
		t.Run(c.what, func(t *testing.T) {
			f := newFabric(t, "dsr")
			f.endpoints([]int{0, 1, 2})
			f.announce([]int{0, 1, 2})
			f.start()
			o, end := &outcome{}, make(chan struct{})
			var all sync.WaitGroup
			for i, conn := range f.begin(30, 20) {
				talk := o.converse
				if i >= 30 {
					talk = o.send
				}
				all.Go(func() { talk(conn, f.pause, end) })
			}
			time.Sleep(2 * f.pause)
			o.begin()
			for _, keys := range c.stages {
				for _, n := range f.nodes {
					n.restartWith(t, f, keys)
				}
			}
			last := time.Second
			if c.breaks {
				last = 4 * time.Second // peers with another key are silent, and are asked again every second
			}
			before := f.nodes[0].peerCounts(t).Received
			time.Sleep(last)
			after := f.nodes[0].peerCounts(t).Received
			close(end)
			all.Wait()
			t.Log(o, after-before, "packets carried to node-1 in the last", last)
			if broken := o.reset + o.stuck + o.failed + o.moved + o.hidden + o.missing; broken > 0 != c.breaks {
				t.Errorf("%s; broken: %v, want %v", o, broken > 0, c.breaks)
			}
			if after == before {
				t.Error("nothing is carried to node-1 at the end")
			}
		})
	}
}

// restartWith gives a node keys that prove what it carries.
func (n *node) restartWith(t *testing.T, f *fabric, keys []string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "dsr-key")
	if err := os.WriteFile(file, []byte(strings.Join(keys, "\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	n.options = append(n.options, "--dsr-key-file", file)
	n.restart(t, f)
}

// restart has the next agent of a node load other programs, as its options say, and waits for them.
func (n *node) restart(t *testing.T, f *fabric) {
	t.Helper()
	n.stop()
	was := n.status(t).Object
	n.startAgent(f.manifests)
	eventually(t, "the programs are others", func() error {
		if n.status(t).Object == was {
			return errors.New("they are as before")
		}
		return nil
	})
	f.awaitPrograms(n)
}
