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
	{"A hook at XDP would decide as others do", aHookAtXDPWouldDecideAsOthersDo},
}

// overMaps loads a program of a test at XDP, over the maps of the rig.
func (r *rig) overMaps(t *testing.T, file, program string) *ebpf.Program {
	t.Helper()
	spec, err := ebpf.LoadCollectionSpec(testenv.Compile(t, file, "../../bpf"))
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
	r.setConstants(t, spec)
	c, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{MapReplacements: shared})
	must(t, err)
	t.Cleanup(c.Close)
	return c.Programs[program]
}

// setConstants gives an object the constants that the programs in force have.
func (r *rig) setConstants(t *testing.T, spec *ebpf.CollectionSpec) {
	t.Helper()
	own, err := ebpf.LoadCollectionSpec("../../pkg/datapath/headgate_bpfel.o")
	must(t, err)
	values := r.readOnly(t)
	for name, v := range spec.Variables {
		if o := own.Variables[name]; v.Constant() && o != nil {
			must(t, v.Set(values[o.Offset:][:o.Size()]))
		}
	}
}

// readOnly returns the memory of the constants of the programs in force.
func (r *rig) readOnly(t *testing.T) []byte {
	t.Helper()
	program, err := r.programs[in].Info()
	must(t, err)
	ids, _ := program.MapIDs()
	for _, id := range ids {
		m, err := ebpf.NewMapFromID(id)
		must(t, err)
		defer m.Close()
		info, err := m.Info()
		must(t, err)
		if info.Name == ".rodata" {
			value, err := m.LookupBytes(uint32(0))
			must(t, err)
			return value
		}
	}
	t.Fatal("the programs have no constants")
	return nil
}

// firstPacket is the tuple of a packet that comes in, which decide.bpf.c is asked about.
func (c cast) firstPacket(client, frontend netip.AddrPort) []byte {
	const hookIn = 1
	src, dst := client.Addr().As16(), frontend.Addr().As16()
	t := append(src[:], dst[:]...)
	t = binary.BigEndian.AppendUint16(t, client.Port())
	t = binary.BigEndian.AppendUint16(t, frontend.Port())
	return append(t, byte(c.protocol), hookIn, 0, 0)
}

// choices returns the backends that clients by many ports get at XDP. The flows go
// on at TC.
func (c cast) choices(t *testing.T, p *ebpf.Program) (out []netip.AddrPort) {
	t.Helper()
	for port := range uint16(60) {
		verdict, becomes, err := p.Test(c.firstPacket(at(c.client, 40000+port), at(c.vip, 80)))
		must(t, err)
		if verdict != xdpPass {
			t.Fatalf("nobody is chosen: %d", verdict)
		}
		backend := at(netip.AddrFrom16([16]byte(becomes[16:])).Unmap(), binary.BigEndian.Uint16(becomes[34:]))
		next := c.packet(at(c.client, 40000+port), at(c.vip, 80), 0).with("A")
		if dst := c.comesOut(t, "the next packet", in, uplink, next).dst; dst != backend {
			t.Errorf("the first packet goes to %s by XDP, the next one to %s by TC", backend, dst)
		}
		out = append(out, backend)
	}
	return out
}

func aHookAtXDPWouldDecideAsOthersDo(t *testing.T, c cast) {
	p := c.overMaps(t, "testdata/decide.bpf.c", "decide_at_xdp")
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
