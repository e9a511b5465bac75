package packets

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/headgate/headgate/pkg/datapath"
	"github.com/headgate/headgate/pkg/lb"
)

// TestFlowsOutliveAnUpgrade replaces maps and programs, with flows from before,
// and with others that begin while it is on its way.
func TestFlowsOutliveAnUpgrade(t *testing.T) {
	for name, flows := range map[string]uint32{"more room": 1 << 16, "less room": 1 << 14} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.tell(t, story{tell: func(t *testing.T, c cast) { c.upgrade(t, flows) }}, cast{v4, r, lb.TCP})
		})
	}
	t.Run("from maps without hints", func(t *testing.T) {
		r := newRig(t)
		r.tell(t, story{tell: func(t *testing.T, c cast) {
			c.upgrade(t, uint32(c.table.room()), "address_filter", "flow_filter", "stored_sockets")
		}}, cast{v4, r, lb.TCP})
	})
}

// upgrade replaces maps and programs, by others with room for so many flows. The
// maps that are named were not there before.
func (c cast) upgrade(t *testing.T, flows uint32, without ...string) {
	vip, local, remote := at(c.vip, 80), at(c.local, 8080), at(c.remote, 8080)
	c.set(t, "web", c.frontend(lb.LoadBalancerIP, vip, local))
	c.set(t, "far", c.frontend(lb.LoadBalancerIP, at(c.vip2, 80), remote))
	before := c.establish(t, at(c.client, 40000), vip, local)
	cfg := c.cfg
	cfg.Flows = flows
	c.dp.Close()
	for _, name := range without {
		must(t, os.Remove(filepath.Join(cfg.Root, "maps", name)))
	}
	dp, err := datapath.Open(cfg)
	must(t, err)
	t.Cleanup(dp.Close)
	c.dp = dp
	meanwhile := c.establish(t, at(c.client, 40001), vip, local)
	far := c.packet(at(c.client, 40002), at(c.vip2, 80), 0)
	c.becomes(t, "one to another node begins", in, uplink, far, far.to(far.src, remote))
	left := c.comesOut(t, "and leaves", out, tunnel, far.to(far.src, remote))

	must(t, dp.Attach())
	c.open(t)
	if got := uint32(c.table.room()); got < flows || got >= flows+flowWays {
		t.Fatalf("there is room for %d flows, want %d or some more", got, flows)
	}
	for _, p := range []packet{before, meanwhile} {
		c.becomes(t, "the client goes on", in, uplink, p.with("A"), p.with("A").to(p.src, local))
		a := p.to(p.src, local).answer("A", nil)
		c.becomes(t, "so does the backend", out, uplink, a, a.to(vip, p.src))
	}
	a := left.answer("SA", nil)
	c.becomes(t, "the answer from the other node", in, tunnel, a, a.to(remote, far.src))
	c.becomes(t, "what goes there", out, tunnel, far.to(far.src, remote).with("A"), left.with("A"))
	c.isReset(t, "what is lost is lost now", in, uplink, c.packet(at(c.client, 50000), vip, 0).with("A"))
}

// TestNothingIsResetDuringAnUpgrade has a client that nobody knows yet.
func TestNothingIsResetDuringAnUpgrade(t *testing.T) {
	r := newRig(t)
	r.tell(t, story{tell: func(t *testing.T, c cast) {
		c.set(t, "web", c.frontend(lb.LoadBalancerIP, at(c.vip, 80), at(c.local, 8080)))
		p := c.packet(at(c.client, 40000), at(c.vip, 80), 0).with("A")
		c.settle(t, false)
		c.refused(t, "while flows come along", in, uplink, p)
		c.settle(t, true)
		c.isReset(t, "when they have", in, uplink, p)
	}}, cast{v4, r, lb.TCP})
}

// TestFlowsOutliveAgentsThatDie has agents die one after the other, each with another size of
// the flow table, when their programs are in force and their maps are not in their place.
// Flows begin by the programs of each, and by those before them, which are on their way out.
func TestFlowsOutliveAgentsThatDie(t *testing.T) {
	for _, last := range []uint32{1 << 14, 1 << 15} {
		t.Run(fmt.Sprintf("the last one has %d", last), func(t *testing.T) {
			r := newRig(t)
			r.tell(t, story{tell: func(t *testing.T, c cast) { c.dieAgain(t, last) }}, cast{v4, r, lb.TCP})
		})
	}
}

func (c cast) dieAgain(t *testing.T, last uint32) {
	vip, local := at(c.vip, 80), at(c.local, 8080)
	c.set(t, "web", c.frontend(lb.LoadBalancerIP, vip, local))
	flows := []packet{c.establish(t, at(c.client, 40000), vip, local)}
	for i, size := range []uint32{1 << 14, 1 << 15, 1 << 16} {
		died := c.keepPins(t, "maps", "next", "next_1")
		c.reopen(t, size)
		flows = append(flows, c.establish(t, at(c.client, uint16(40001+2*i)), vip, local)) // by the programs before
		c.open(t)
		flows = append(flows, c.establish(t, at(c.client, uint16(40002+2*i)), vip, local))
		c.dp.Close()
		died(t)
	}
	c.reopen(t, last)
	c.open(t)
	for _, p := range flows {
		c.becomes(t, "the client goes on", in, uplink, p.with("A"), p.with("A").to(p.src, local))
		a := p.to(p.src, local).answer("A", nil)
		c.becomes(t, "so does the backend", out, uplink, a, a.to(vip, p.src))
	}
	left, err := filepath.Glob(filepath.Join(c.root, "*"))
	if must(t, err); len(left) != 2 {
		t.Errorf("there are %v, want maps and links", left)
	}
}

// reopen has another agent come, with another size of the flow table.
func (c cast) reopen(t *testing.T, flows uint32) {
	t.Helper()
	cfg := c.cfg
	cfg.Flows = flows
	c.dp.Close()
	dp, err := datapath.Open(cfg)
	must(t, err)
	t.Cleanup(dp.Close)
	c.dp = dp
	must(t, dp.Attach())
}

// keepPins keeps what is pinned in some directories. What it returns puts it back, one
// directory further but for the first: so the agent died that came meanwhile.
func (c cast) keepPins(t *testing.T, dirs ...string) func(t *testing.T) {
	t.Helper()
	path := func(dir string) string { return filepath.Join(c.root, dir) }
	for _, dir := range dirs {
		entries, err := os.ReadDir(path(dir))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		must(t, err)
		must(t, os.Mkdir(path(dir+"_kept"), 0o700))
		for _, e := range entries {
			copyPin(t, filepath.Join(path(dir), e.Name()), filepath.Join(path(dir+"_kept"), e.Name()))
		}
	}
	return func(t *testing.T) {
		t.Helper()
		must(t, os.Rename(path(dirs[0]), path(dirs[1])))
		must(t, os.Rename(path(dirs[0]+"_kept"), path(dirs[0])))
		for i, dir := range dirs[1:] {
			if err := os.Rename(path(dir+"_kept"), path(append(dirs, "next_2")[i+2])); !errors.Is(err, fs.ErrNotExist) {
				must(t, err)
			}
		}
	}
}

// copyPin pins once more what is pinned.
func copyPin(t *testing.T, from, to string) {
	t.Helper()
	if p, err := ebpf.LoadPinnedProgram(from, nil); err == nil {
		defer p.Close()
		clone, err := p.Clone()
		must(t, err)
		must(t, clone.Pin(to))
		must(t, clone.Close())
		return
	}
	m, err := ebpf.LoadPinnedMap(from, nil)
	must(t, err)
	defer m.Close()
	clone, err := m.Clone()
	must(t, err)
	must(t, clone.Pin(to))
	must(t, clone.Close())
}
