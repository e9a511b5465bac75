package datapath

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/headgate/headgate/pkg/lb"
)

// Decision is what a program of a device does with the first packet of a client.
type Decision struct {
	// From and To are of the packet as the program left it: to a backend, or as it came. Of one that is carried
	// To is the backend, too.
	From, To netip.AddrPort
	// CarriedTo is where the outer header of a packet goes that is carried: to a node, or to a backend outside.
	// It is not valid for others.
	CarriedTo netip.Addr
	// Reason is why the client is refused, in the word of the counter; "" where it is not.
	Reason string
	// IsRetry says that clients avoid the backend, and that this one tries whether it is well again.
	IsRetry bool
}

// Replay is a program of the object built in, with the constants of those in force, on maps of its
// own: those that programs only read are the ones in force, and what they write is a copy. So a
// packet leaves no trace: no flow, no count, no turn of a backend.
type Replay struct {
	// Differs says that the program of this name in force is of other code, as that of another version: it may
	// decide otherwise.
	Differs bool

	name    string
	reader  *Reader
	program *ebpf.Program
	maps    *mapSet
	atHome  *Replay // see backendAtHome; nil before a packet is carried
	isHome  bool    // of all backends: nothing is carried on
}

// replayFlows is the room for flows of packets that are replayed.
const replayFlows = 1024

// The maps that programs read and do not write, and arrays of which they get a copy. All
// others are empty.
var (
	sharedInReplay = []string{"frontends", "fallbacks", "addresses", addressFilter, "service_cidrs", "devices", "source_ranges", "exempt_namespaces"}
	copiedInReplay = []string{"slots", "backends", "services", "peers"}
)

// NewReplay loads the program, which the verifier looks at: some tenths of a second.
func (r *Reader) NewReplay(name string) (*Replay, error) {
	spec, err := r.replaySpec(name)
	if err != nil {
		return nil, fmt.Errorf("replay: %w", err)
	}
	shared := map[string]*ebpf.Map{}
	for _, name := range sharedInReplay {
		shared[name] = r.maps.byName[name]
	}
	c, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{MapReplacements: shared})
	if err != nil {
		return nil, explainLoad(err)
	}
	p := &Replay{name: name, reader: r, program: c.Programs[name], maps: &mapSet{byName: c.Maps}}
	if p.Differs, err = r.differs(name, p.program); err != nil {
		p.Close()
		return nil, err
	}
	for _, name := range copiedInReplay {
		if err := copyArray(c.Maps[name], r.maps.byName[name]); err != nil {
			p.Close()
			return nil, err
		}
	}
	return p, nil
}

// differs says whether a program of the same name is in force that is of other code: constants and maps
// are no part of that.
func (r *Reader) differs(name string, from *ebpf.Program) (bool, error) {
	all, err := r.ProgramRuns()
	if err != nil {
		return false, err
	}
	for _, one := range all {
		if one.Name != name {
			continue
		}
		is, err := ebpf.NewProgramFromID(ebpf.ProgramID(one.ID))
		if err != nil {
			return false, err
		}
		defer is.Close()
		info, err := is.Info()
		if err != nil {
			return false, err
		}
		own, err := from.Info()
		return err == nil && own.Tag != info.Tag, err
	}
	return false, nil
}

// replaySpec returns the object with one program, the constants in force, and maps as large
// as those in force.
func (r *Reader) replaySpec(name string) (*ebpf.CollectionSpec, error) {
	o, err := newObject(Config{})
	if err != nil {
		return nil, err
	}
	if o.spec.Programs[name] == nil {
		return nil, fmt.Errorf("the object has no program %s", name)
	}
	spec := o.spec
	spec.Programs = map[string]*ebpf.ProgramSpec{name: spec.Programs[name]}
	for name, m := range spec.Maps {
		if live := r.maps.byName[name]; live != nil && name != flowTableMap {
			m.MaxEntries = live.MaxEntries()
		}
	}
	for _, name := range []string{"socket_nat", storedSockets} { // one socket asks at a time
		spec.Maps[name].MaxEntries = 1
	}
	spec.Maps[flowTableMap].MaxEntries = flowSets(replayFlows)
	spec.Maps[flowTrafficMap].MaxEntries = 1 // what is replayed does not count
	constants, err := r.constants()
	if err != nil {
		return nil, err
	}
	for name, v := range spec.Variables {
		if !v.Constant() {
			continue
		}
		end := uint64(v.Offset) + uint64(len(v.Value))
		if end > uint64(len(constants)) {
			return nil, fmt.Errorf("the programs in force were loaded by another version: they lack the constant %s", name)
		}
		copy(v.Value, constants[v.Offset:end])
	}
	values := map[string]any{"flow_sets": flowSets(replayFlows), "socket_nat_mask": uint32(0), "count_traffic": false}
	if r.maps.frontends != nil { // the programs in force may be those of the maps that replace these
		values["frontends_mask"], values["frontend_factors"] = r.maps.frontends.len-1, r.maps.factors
	}
	return spec, setConstants(spec, values)
}

// constants returns the load-time constants of the programs in force, as they lie in memory.
func (r *Reader) constants() ([]byte, error) {
	l, err := r.link(makers[0].program)
	if err != nil {
		return nil, fmt.Errorf("find the programs in force: %w", err)
	}
	program, err := ebpf.NewProgramFromID(l.Program)
	if err != nil {
		return nil, err
	}
	defer program.Close()
	info, err := program.Info()
	if err != nil {
		return nil, err
	}
	ids, _ := info.MapIDs()
	for _, id := range ids {
		if value, err := readOnlyData(id); value != nil || err != nil {
			return value, err
		}
	}
	return nil, errors.New("the programs in force have no constants")
}

// readOnlyData returns what a map holds if it is that of the constants, nil for others.
func readOnlyData(id ebpf.MapID) ([]byte, error) {
	m, err := ebpf.NewMapFromID(id)
	if err != nil {
		return nil, err
	}
	defer m.Close()
	info, err := m.Info()
	if err != nil || info.Name != ".rodata" {
		return nil, err
	}
	return m.LookupBytes(uint32(0))
}

// copyArray copies an array map into another one.
func copyArray(to, from *ebpf.Map) error {
	if to.ValueSize() != from.ValueSize() || to.MaxEntries() != from.MaxEntries() {
		return fmt.Errorf("map %s was made by another version", from)
	}
	source, target := newWindow(from, glanceWindow, unix.PROT_READ), newWindow(to, glanceWindow, unix.PROT_READ|unix.PROT_WRITE)
	defer source.Close()
	defer target.Close()
	for at := uintptr(0); at < source.whole; at += glanceWindow {
		if err := errors.Join(source.move(at, 0), target.move(at, 0)); err != nil {
			return err
		}
		copy(target.mem, source.mem)
	}
	return nil
}

// Remember has the programs find the affinity of a client, where it has one.
func (p *Replay) Remember(r *Reader, client netip.Addr, service uint32) error {
	key, value := headgateAffinityKey{Client: encodeAddr(client), Service: service}, headgateAffinity{}
	err := r.maps.byName[affinitiesMap].Lookup(&key, &value)
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return p.maps.byName[affinitiesMap].Put(&key, &value)
}

// Decide has the program see the first packet of a client that reaches a device, by its
// index. Flows of earlier ones are there: another client has another port.
func (p *Replay) Decide(device uint32, protocol lb.Protocol, from, to netip.AddrPort) (d Decision, err error) {
	var context [192]byte // struct __sk_buff of linux/bpf.h up to ifindex, the eleventh word
	binary.NativeEndian.PutUint32(context[40:], device)
	frame := firstPacket(protocol, from, to)
	opts := &ebpf.RunOptions{Data: frame, DataOut: make([]byte, len(frame)+64), Context: context}
	d, err = p.watch(func() error {
		_, err := p.program.Run(opts)
		return err
	})
	if err != nil {
		return d, fmt.Errorf("replay a packet: %w", err)
	}
	if d.Reason != "" {
		d.From, d.To = from, to
		return d, nil
	}
	d.From, d.To, err = ends(opts.DataOut)
	if err == nil && len(opts.DataOut) > len(frame) {
		d, err = p.carried(d.To.Addr(), device, protocol, from, to)
	}
	return d, err
}

// carried returns what becomes of a packet whose outer header goes to an address. A backend outside gets it as it is.
func (p *Replay) carried(by netip.Addr, device uint32, protocol lb.Protocol, from, to netip.AddrPort) (d Decision, err error) {
	if peer := p.reader.outsideAt(by); peer != 0 {
		d = Decision{From: from, To: p.reader.backendOf(peer, protocol, to)}
	} else if p.isHome {
		return d, errors.New("the home of a carried packet carries it on, so its backend is not known")
	} else {
		d, err = p.backendAtHome(device, protocol, from, to)
	}
	d.CarriedTo = by
	return d, err
}

// backendAtHome decides as the node does that a packet is carried to: there the backend is at home, as all are in this
// replay. The outer header does not say which one the packet gets.
func (p *Replay) backendAtHome(device uint32, protocol lb.Protocol, from, to netip.AddrPort) (d Decision, err error) {
	if p.atHome == nil {
		at, err := p.reader.NewReplay(p.name)
		if err != nil {
			return d, err
		}
		p.atHome = at
		if err := at.bringHome(); err != nil {
			return d, err
		}
	}
	return p.atHome.Decide(device, protocol, from, to)
}

// Forget has the next packet find an empty flow table, as the first one did.
func (p *Replay) Forget() error {
	sets, err := newMapping[headgateFlowSet](p.maps.byName[flowTableMap], true)
	if err != nil {
		return err
	}
	defer sets.Close()
	for i := range sets.len {
		*sets.at(i) = headgateFlowSet{}
	}
	if p.atHome != nil {
		return p.atHome.Forget()
	}
	return nil
}

// bringHome has this node be the home of all backends of a replay.
func (p *Replay) bringHome() error {
	backends, err := newSeldom[headgateBackend](p.maps.byName["backends"])
	if err != nil {
		return err
	}
	defer backends.Close()
	for id := range backends.len {
		b, err := backends.at(id)
		if err != nil {
			return err
		}
		b.Home = uint32(headgateHomeHOME_HERE)
	}
	p.isHome = true
	return nil
}

// watch returns what the program counts of what it is made to see.
func (p *Replay) watch(see func() error) (d Decision, err error) {
	before, err := p.maps.counters()
	if err != nil {
		return d, err
	}
	if err := see(); err != nil {
		return d, err
	}
	after, err := p.maps.counters()
	if err != nil {
		return d, err
	}
	d.IsRetry = after.BackendRetry > before.BackendRetry
	names, err := names()
	for i := range names.drops {
		if after.Drops[i] > before.Drops[i] {
			d.Reason = names.drops[i]
		}
	}
	return d, err
}

// Close lets go of the program and its maps.
func (p *Replay) Close() {
	if p.atHome != nil {
		p.atHome.Close()
	}
	p.program.Close()
	p.maps.Close()
}
