package datapath

import (
	"maps"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/plan"
)

// What the kernel is asked for, and how its releases are compared.
var (
	IP6CsumFlag = ip6CsumFlag
	OlderThan   = olderThan
)

// FlowsMigrated is what the maps say of themselves, for tests.
func (d *Datapath) FlowsMigrated() *uint64 { return &d.maps.about.at(0).FlowsMigrated }

// BeginHandOver has programs do as if whoever removes them hands flows over.
func (d *Datapath) BeginHandOver() error { return d.maps.beginHandOver() }

// HandsOver says whether programs do so, Removed when a backend was last taken away, by the
// clock that Monotonic reads.
func (d *Datapath) HandsOver() bool { return d.maps.about.at(0).HandsOver != 0 }

func (d *Datapath) Removed() time.Duration { return time.Duration(d.maps.about.at(0).RemovedNs) }

// EchoesUntil is until when questions of peers get echoes, by that clock.
func (d *Datapath) EchoesUntil() time.Duration {
	return time.Duration(d.maps.about.at(0).EchoesUntilNs)
}

// AddFlow has the flow table know a connection of a client elsewhere.
func (d *Datapath) AddFlow(tb testing.TB, protocol lb.Protocol) {
	tb.Helper()
	d.addFlow(tb, protocol, 1, 0)
}

// AddClosedFlow has it know one that both sides have closed just now.
func (d *Datapath) AddClosedFlow(tb testing.TB) {
	tb.Helper()
	d.addFlow(tb, lb.TCP, 2, uint32(headgateFlowFlagFLOW_HALF_OPEN|headgateFlowFlagFLOW_CLOSING))
}

func (d *Datapath) addFlow(tb testing.TB, protocol lb.Protocol, number, flags uint32) {
	tb.Helper()
	table, err := openFlowTable(d.maps, true)
	if err != nil {
		tb.Fatal(err)
	}
	defer table.Close()
	now := mustClock(tb)
	const state = uint32(headgateFlowFlagFLOW_ORIGINAL | headgateFlowFlagFLOW_TO_BACKEND)
	f := someFlow(1, number)
	f.Protocol = uint8(protocol)
	if !table.add(f, stateOf(now, 0, state|flags), now) {
		tb.Fatal("the flow table has no room")
	}
}

// CallsMayTake has a caller of replays be killed after so long.
func CallsMayTake(t *testing.T, long time.Duration) {
	usual := callMayTake
	callMayTake = long
	t.Cleanup(func() { callMayTake = usual })
}

// RoomOf returns the room of the maps that a reader of pins has.
func RoomOf(tb testing.TB, root string) plan.Sizes {
	tb.Helper()
	r, err := Inspect(root)
	if err != nil {
		tb.Fatal(err)
	}
	defer r.Close()
	return r.maps.sizes()
}

// HandsOverBelow says whether the maps below a root of pins say that connections are handed over.
func HandsOverBelow(tb testing.TB, root string) bool {
	tb.Helper()
	r, err := Inspect(root)
	if err != nil {
		tb.Fatal(err)
	}
	defer r.Close()
	return r.maps.about.at(0).HandsOver != 0
}

// ConnectionsBelow returns how many connections the maps below a root of pins know.
func ConnectionsBelow(root string) (n int, err error) {
	r, err := Inspect(root)
	if err != nil {
		return 0, err
	}
	defer r.Close()
	table, err := openFlowTable(r.maps, true)
	if err != nil {
		return 0, err
	}
	defer table.Close()
	_, all := table.connections()
	return len(all), nil
}

// PinMaps pins the maps in one more directory.
func (d *Datapath) PinMaps(dir string) error { return d.maps.pin(dir) }

// Monotonic is the clock of programs.
var Monotonic = monotonic

// Forget has a Datapath load anew what it needs to tell sockets.
func Forget(d *Datapath) { d.teller.forget() }

// Counted returns the names of all counters and of all drop reasons.
func Counted() (counters, drops []string, err error) {
	v, err := names()
	return v.counters, v.drops, err
}

// Hooks returns the name of every program that attaches to something, and to what.
func Hooks() (out [][2]string, err error) {
	spec, err := loadHeadgate()
	if err != nil {
		return nil, err
	}
	for _, h := range slices.Concat(keepers, tracers, watchers, makers) {
		out = append(out, [2]string{h.program, spec.Programs[h.program].SectionName})
	}
	for _, h := range deviceHooks {
		out = append(out, [2]string{h.program, spec.Programs[h.program].SectionName})
	}
	return out, nil
}

// Programs returns the names of all programs of the datapath.
func Programs() ([]string, error) {
	spec, err := loadHeadgate()
	if err != nil {
		return nil, err
	}
	return slices.Sorted(maps.Keys(spec.Programs)), nil
}

// LoadOne has the kernel verify a program as an agent with a configuration would load it.
func LoadOne(cfg Config, name string) error {
	if cfg.SNATPorts == (Ports{}) {
		cfg.SNATPorts = DefaultSNATPorts
	}
	cfg.Affinities, cfg.Flows = 1, 1024
	o, err := newObject(cfg)
	if err != nil {
		return err
	}
	if err := setConstants(o.spec, map[string]any{"name_sockets": !destroysFromBPF()}); err != nil {
		return err
	}
	maps, err := o.makeMaps(cfg.Sizes, nil)
	if err != nil {
		return err
	}
	defer maps.Close()
	loaded, err := o.loadPrograms([]string{name}, maps.mapSet, nil)
	if err != nil {
		return err
	}
	loaded.Close()
	return nil
}

// FrontendsOfOnePlace returns frontends whose search begins at one place of the maps as they are.
func (d *Datapath) FrontendsOfOnePlace(n int) (all []lb.AddrPort) {
	hash := func(i uint32) (lb.AddrPort, uint32) {
		at := lb.AddrPort{Addr: netip.AddrFrom4([4]byte{198, byte(i >> 16), byte(i >> 8), byte(i)}), Port: 80, Protocol: lb.TCP}
		return at, d.maps.factors.hash(encodeAddrPort(at)) & (d.maps.frontends.len - 1)
	}
	_, place := hash(0)
	for i := uint32(0); i < 1<<24 && len(all) < n; i++ {
		if at, where := hash(i); where == place {
			all = append(all, at)
		}
	}
	return all
}
