package network

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/cilium/ebpf/link"

	"github.com/headgate/headgate/pkg/netdev"
)

// Clients of other machines are served again after somebody has detached the
// programs of devices, whichever way they were attached.
func TestClientsAreServedAgainAfterProgramsOfDevicesWereDetached(t *testing.T) {
	n := newNetwork(t, false)
	for _, node := range n.nodes {
		node.serve()
	}
	n.startAgents()
	node := n.nodes[0]
	served := func(by string) {
		t.Helper()
		eventually(t, "a client is served by "+by, func() error {
			for _, d := range node.status(t).Devices {
				for _, h := range d.Hooks {
					if h.By != by {
						return fmt.Errorf("%s is attached to %s by %q", h.Name, d.Name, h.By)
					}
				}
			}
			_, err := n.client.ask("tcp", node.at(0, onNode2))
			return err
		})
	}
	node.do(func() error { served("tcx"); return nil })
	pins, err := filepath.Glob(filepath.Join(node.root, "links", "device_*"))
	if err != nil || len(pins) != 2 {
		t.Fatalf("pins %q, %v", pins, err)
	}
	for _, pin := range pins {
		l, err := link.LoadPinnedLink(pin, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Detach(); err != nil {
			t.Fatal(err)
		}
		l.Close()
	}
	node.do(func() error { served("tcx"); return nil })

	node.stop()
	node.options = []string{"--filters"}
	node.startAgent(n.manifests)
	node.do(func() error { served("clsact"); return nil })
	node.do(func() error {
		filters, err := netdev.Filters()
		for _, f := range filters {
			if err := netdev.RemoveFilter(f); err != nil {
				return err
			}
		}
		if len(filters) != 2 {
			t.Errorf("filters %v", filters)
		}
		return err
	})
	node.do(func() error { served("clsact"); return nil })
}
