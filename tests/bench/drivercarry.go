package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"

	"github.com/cilium/ebpf"

	"github.com/headgate/headgate/pkg/lb"
)

// loopbackIndex is the device on which test runs have a driver see packets.
const loopbackIndex = 1

// carriedPackets are those for a carried frontend, at a driver. Nothing is kept of their
// flows. The first meets no program.
func (b *bench) carriedPackets(name string, object []byte) (cases []*packetCase, closeAll func(), err error) {
	n, err := b.carriedNode("carried"+name, object, true)
	if err != nil {
		return nil, func() {}, err
	}
	add := func(c packetCase) {
		c.node, c.atDriver, c.carried, c.routed, c.protocol = n, true, true, true, lb.TCP
		c.peer = n.frontend
		if len(cases) > 0 {
			c.base = cases[0]
		}
		cases = append(cases, &c)
	}
	add(packetCase{name: "no program", flows: 1, flags: ack})
	for _, flows := range b.plan.flows {
		add(packetCase{name: "at the driver, carried", key: fmt.Sprintf("driver/carry/%d", flows), flows: flows, program: "uplink", flags: ack})
	}
	add(packetCase{name: "at the driver, carried, SYN", key: "driver/carry/syn", flows: allFlows, program: "uplink", flags: syn})
	return cases, n.close, cases[1].isCarried()
}

// findWays has TC carry packets to all nodes, so that a driver knows the way to each.
func (n *packetNode) findWays(g *group) (err error) {
	if n.express, err = openExpress(g.root); err != nil {
		return err
	}
	for flow := range carriedPeers * 32 {
		if _, err := n.passBy(loopbackIndex, n.ask(flow*routedBackends, ack)); err != nil { // to one address
			return err
		}
	}
	if n.ways, err = openWays(g.root); err != nil {
		return err
	}
	if err := n.ways.renew(); err != nil {
		return err
	}
	n.express.renew(false) // where objects of before have ways, too
	if there := max(n.express.there, n.ways.seen()); there < carriedPeers {
		return fmt.Errorf("a driver knows the way to %d of %d nodes", there, carriedPeers)
	}
	return nil
}

// knownWays are by which next hops peers are reached.
type knownWays struct {
	all              *ebpf.Map
	size, noted, mtu uint32 // of a way, and where they stand in it
	there            int
}

// openWays opens them; nil: an object of before has none.
func openWays(root string) (*knownWays, error) {
	m, err := ebpf.LoadPinnedMap(filepath.Join(root, "maps", "peer_ways"), nil)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	w := &knownWays{all: m}
	if w.size, err = where(m, "peer_way", map[string]*uint32{"noted": &w.noted, "mtu": &w.mtu}); err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return w, nil
}

// renew makes all of them as young as can be, and counts them.
func (w *knownWays) renew() error {
	if w == nil {
		return nil
	}
	w.there = 0
	noted := flowTime()
	for id := range w.all.MaxEntries() {
		var perCPU [][]byte
		if err := w.all.Lookup(id, &perCPU); err != nil {
			return err
		}
		for _, ways := range perCPU {
			for way := range slices.Chunk(ways, int(w.size)) {
				if binary.NativeEndian.Uint16(way[w.mtu:]) != 0 {
					binary.NativeEndian.PutUint32(way[w.noted:], noted)
					w.there++
				}
			}
		}
		if err := w.all.Put(id, perCPU); err != nil {
			return err
		}
	}
	return nil
}

func (w *knownWays) seen() int {
	if w == nil {
		return 0
	}
	return w.there
}

func (w *knownWays) close() {
	if w != nil {
		w.all.Close()
	}
}
