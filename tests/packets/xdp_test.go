package packets

import (
	"encoding/binary"
	"net/netip"
	"path/filepath"
	"slices"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/tests/testenv"
)

// xdpStories are told by TestPackets.
var xdpStories = []story{
	{"A hook at XDP would choose as others do", aHookAtXDPWouldChooseAsOthersDo},
}

// atXDP loads a program that chooses at XDP, over the maps of the rig.
func (r *rig) atXDP(t *testing.T) *ebpf.Program {
	t.Helper()
	spec, err := ebpf.LoadCollectionSpec(testenv.Compile(t, "testdata/choose.bpf.c", "../../bpf"))
	must(t, err)
	shared := map[string]*ebpf.Map{}
	for name := range spec.Maps {
		m, err := ebpf.LoadPinnedMap(filepath.Join(r.root, "maps", name), nil)
		if err != nil {
			continue // made by the loader
		}
		defer m.Close()
		shared[name] = m
		spec.Maps[name].MaxEntries = m.MaxEntries()
	}
	c, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{MapReplacements: shared})
	must(t, err)
	t.Cleanup(c.Close)
	return c.Programs["choose"]
}

// question is what choose.bpf.c is asked for a client of a frontend.
func (c cast) question(client, frontend netip.AddrPort) []byte {
	addr, from := frontend.Addr().As16(), client.Addr().As16()
	q := binary.BigEndian.AppendUint16(slices.Clone(addr[:]), frontend.Port())
	q = append(q, byte(c.protocol), 0)
	q = append(append(q, from[:]...), 0, 0, 0, 0) // so that what follows is aligned
	return append(binary.BigEndian.AppendUint16(q, client.Port()), 0, 0, 0, 0, 0, 0)
}

// choices returns the backends that clients by many ports get at XDP.
func (c cast) choices(t *testing.T, p *ebpf.Program) (out []netip.AddrPort) {
	t.Helper()
	const pass = 2
	for port := range uint16(60) {
		q := c.question(at(c.client, 40000+port), at(c.vip, 80))
		verdict, answer, err := p.Test(q)
		must(t, err)
		if verdict != pass {
			t.Fatalf("nobody is chosen: %d", verdict)
		}
		addr := netip.AddrFrom16([16]byte(answer)).Unmap()
		out = append(out, at(addr, binary.BigEndian.Uint16(answer[16:])))
	}
	return out
}

func aHookAtXDPWouldChooseAsOthersDo(t *testing.T, c cast) {
	p := c.atXDP(t)
	backends := []netip.AddrPort{at(c.local, 8080), at(c.local2, 8080), at(c.local2, 8081)}
	for _, name := range lb.Algorithms() {
		a, _ := lb.ParseAlgorithm(name)
		c.forget(t)
		_, err := c.dp.Recount() // so that none has more in flight
		must(t, err)
		c.set(t, "web", c.hashed(a, backends...))
		got := c.choices(t, p)
		if slices.Contains([]lb.Algorithm{lb.Maglev, lb.Stable, lb.SH, lb.DH}, a) {
			if want := c.chosen(t, "S"); !slices.Equal(got, want) {
				t.Errorf("%s: at XDP clients get\n%v, at TC\n%v", a, got, want)
			}
			continue
		}
		for _, b := range backends {
			if !slices.Contains(got, b) {
				t.Errorf("%s: nobody gets %s", a, b)
			}
		}
	}
}
