package packets

import (
	"bytes"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/headgate/headgate/pkg/datapath"
	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/plan"
)

// The ports that flows get where their own cannot be used.
// Source ports, of which clients keep theirs up to the last one that is not shared.
var (
	snatLow, snatHigh = datapath.DefaultSNATPorts.First, datapath.DefaultSNATPorts.Last
	snatUnshared      = uint16(29999)
)

// model is the datapath as it should be, in Go: what Services there are, what
// flows, and what becomes of a frame. Where the datapath may choose, the model
// says whether the choice was one of those it has.
type model struct {
	told       *plan.Model
	flows      map[key]*modelFlow
	datagrams  map[fragmentKey]datagram
	known      map[netip.Addr]bool // addresses that frontends and nodes have or had
	answers    map[end]bool        // ends of the node at which frontends answer or did
	ends       map[end]bool        // of flows that there were
	affinities map[affinityKey]uint32
	counts     map[string]uint64
	carried    carried // by flows of Services
	missing    []missingDirection
	given      time.Time // when the packet was that is judged
	mayConfirm []key     // datagrams that do if their flow is old enough
	mayBegin   *view     // a packet of the node, to where no flow has gone as far as is known
}

type fragmentKey struct {
	hook     hook
	src, dst netip.Addr
	id       uint32
	protocol lb.Protocol // of IPv4
}

// datagram is what the first of some fragments had.
type datagram struct {
	src, dst uint16
	protocol lb.Protocol
}

type affinityKey struct {
	client  netip.Addr
	service uint32
}

func newModel(r *rig) *model {
	return &model{told: &r.told, known: r.known, answers: r.answers, flows: map[key]*modelFlow{}, datagrams: map[fragmentKey]datagram{}, ends: map[end]bool{}, affinities: map[affinityKey]uint32{}, counts: map[string]uint64{}}
}

// result is what a program did.
type result struct {
	verdict uint32
	frame   []byte
}

// judge says what is wrong with what a program made of a frame, and takes note
// of the choices that it made.
func (m *model) judge(h hook, dev plan.Device, frame []byte, got result) error {
	v, ok := parseFrame(frame)
	v.hook = h
	if !ok {
		return got.want(frame)
	}
	if h == in && (v.src.Addr().Unmap().IsLoopback() || v.dst.Addr().Unmap().IsLoopback()) {
		m.counts["drop martian"]++
		return got.wantDrop("a martian")
	}
	if v.isError(frame) {
		return got.want(m.translateError(frame, v))
	}
	v, what := m.ports(frame, v)
	switch what {
	case "none":
		return got.want(frame)
	case "early":
		m.counts["fragment_queued"]++
		return got.wantDrop("its first fragment is missing")
	}
	if v.later && v.offset < minimum[v.protocol] && m.flows[v.key] != nil {
		m.counts["drop fragment"]++
		return got.wantDrop("it overlaps a header")
	}
	switch f, does := m.find(frame, v); does {
	case isBroken:
		return got.wantReset(frame, v, m)
	case flows:
		m.counts["flow_packet"]++
		m.count(frame, v, f)
		m.note(frame, v, f)
		if v.protocol == lb.SCTP && v.more && !v.later && (f.src.Port() != v.src.Port() || f.dst.Port() != v.dst.Port()) {
			m.counts["drop fragment"]++
			return got.wantDrop("its checksum cannot be known")
		}
		return got.want(v.rewritten(frame, f.src, f.dst))
	}
	if onlyFollows(v) {
		return got.want(frame)
	}
	if h == in {
		return m.balance(frame, v, dev, got)
	}
	return m.fromDevice(frame, v, dev, got)
}

// want says how what was done differs from passing a frame.
func (r result) want(frame []byte) error {
	if r.verdict != pass || !bytes.Equal(r.frame, frame) {
		return fmt.Errorf("verdict %d, frame %s\nwant verdict %d, frame %s", r.verdict, dump(r.frame), pass, dump(frame))
	}
	return nil
}

func (r result) wantDrop(why string) error {
	if r.verdict != drop {
		return fmt.Errorf("verdict %d, want a drop: %s", r.verdict, why)
	}
	return nil
}

func (r result) wantVerdict(v uint32) error {
	if r.verdict != v {
		return fmt.Errorf("verdict %d, want %d, frame %s", r.verdict, v, dump(r.frame))
	}
	return nil
}

// ports reads the ports of a packet, or finds them if it is a fragment. It says
// why there are none: "none" ever, or "early" if its datagram has not begun.
func (m *model) ports(frame []byte, v view) (view, string) {
	if len(frame) < v.end || !v.later && (!v.hasPorts() || v.end < v.l4+minimum[v.protocol]) {
		return v, "none"
	}
	k := v.fragmentKey()
	if !v.later {
		v = v.withPorts(frame)
		if _, known := m.datagrams[k]; v.more && (known || m.mayBeOurs(v)) {
			m.datagrams[k] = datagram{v.src.Port(), v.dst.Port(), v.protocol}
		}
		return v, ""
	}
	d, known := m.datagrams[k]
	switch {
	case !known && v.hasPorts() && v.hook == in && m.told.Addresses[v.dst.Addr()] != 0:
		return v, "early"
	case !known:
		return v, "none"
	}
	v.src, v.dst, v.protocol = at(v.src.Addr(), d.src), at(v.dst.Addr(), d.dst), d.protocol
	return v, ""
}

// mayBeOurs says whether a packet is for a Service or has the end of a flow that there
// was at some time, as far as the datapath tells ports apart.
func (m *model) mayBeOurs(v view) bool {
	inCIDR := slices.ContainsFunc(m.told.ServiceCIDRs, func(p netip.Prefix) bool { return p.Contains(v.dst.Addr()) })
	return v.hook == in && (m.known[v.dst.Addr()] || inCIDR) || m.ends[quarterOf(v.dst)] || v.hook == out && (m.ends[quarterOf(v.src)] || m.answers[quarterOf(v.src)])
}

// end is an address with a quarter of its ports.
type end struct {
	addr    netip.Addr
	quarter uint16
}

func quarterOf(a netip.AddrPort) end { return end{a.Addr(), a.Port() >> 14} }

func (v view) fragmentKey() fragmentKey {
	k := fragmentKey{v.hook, v.src.Addr(), v.dst.Addr(), v.fragmentID, v.protocol}
	if !v.is4 {
		k.protocol = 0
	}
	return k
}

func (m *model) table(t plan.Table) []uint32 { return m.told.Table(t) }

// balance judges what was done with a packet that may be for a frontend.
func (m *model) balance(frame []byte, v view, dev plan.Device, got result) error {
	f, reason := m.frontend(v)
	switch {
	case m.isDiscarded(v):
		return got.want(frame)
	case reason != "":
		m.counts["drop "+reason]++
		return m.refusal(frame, v, dev, got)
	case f == nil:
		return m.bypassServices(frame, v, got)
	case m.isFromFrontend(v, f):
		m.counts["drop martian"]++
		return got.wantDrop("it comes from a frontend")
	case f.Views[lb.External].Table.Size == 0 && f.Views[lb.External].NoLocal:
		m.counts["drop no_local_endpoint"]++
		return got.wantDrop("no local endpoint")
	case f.Views[lb.External].Table.Size == 0:
		m.counts["drop no_endpoint"]++
		return m.refusal(frame, v, dev, got)
	}
	return m.toBackend(frame, v, f, got)
}

// isFromFrontend says whether a datagram comes from where a Service answers.
func (m *model) isFromFrontend(v view, to *plan.Frontend) bool {
	from, found := m.told.Frontends[lb.AddrPort{Addr: v.src.Addr(), Port: v.src.Port(), Protocol: v.protocol}]
	return found && !from.Former && v.protocol == lb.UDP && (from.Kind != lb.ExternalIP || from.Service == to.Service)
}

// frontend returns what a packet is for, or why it is refused.
func (m *model) frontend(v view) (f *plan.Frontend, refused string) {
	look := func(a netip.Addr) *plan.Frontend {
		if f := m.frontendAt(a, v.key); f != nil && !f.Former {
			return f
		}
		return nil
	}
	to := v.dst.Addr().Unmap()
	if f = look(to); f != nil {
		return f, ""
	}
	kind := m.told.Addresses[to]
	if kind&plan.NodeAddress != 0 {
		if f = look(unspecified(to)); f != nil {
			return f, ""
		}
	}
	inCIDR := slices.ContainsFunc(m.told.ServiceCIDRs, func(p netip.Prefix) bool { return p.Contains(to) })
	switch {
	case kind&plan.ServiceAddress != 0:
		return nil, "no_service_port"
	case kind == 0 && inCIDR:
		return nil, "no_service"
	}
	return nil, ""
}

// frontendAt returns the frontend at an address and the port that a packet is for, nil for none.
func (m *model) frontendAt(a netip.Addr, k key) *plan.Frontend {
	if f, ok := m.told.Frontends[lb.AddrPort{Addr: a, Port: k.dst.Port(), Protocol: k.protocol}]; ok {
		return &f
	}
	return nil
}

// asked returns the frontend by which the client of a flow began, which may be a former one.
func (m *model) asked(k key) *plan.Frontend {
	to := k.dst.Addr().Unmap()
	if f := m.frontendAt(to, k); f != nil {
		return f
	}
	return m.frontendAt(unspecified(to), k)
}

// toBackend judges the choice of a backend.
func (m *model) toBackend(frame []byte, v view, f *plan.Frontend, got result) error {
	if !mayBegin(frame, v) {
		return m.lost(frame, v, f, got)
	}
	allowed := m.table(f.Views[lb.External].Table)
	sticky := affinityKey{v.src.Addr(), f.Service}
	if had, ok := m.affinities[sticky]; ok && f.AffinityTimeout > 0 && slices.Contains(allowed, had) {
		m.counts["affinity"]++
		allowed = []uint32{had}
	}
	src, dst, err := got.ends(frame, v)
	if err != nil {
		return err
	}
	for _, id := range allowed {
		if b := m.told.Backends[id]; at(b.Addr, b.Port) != dst {
			continue
		}
		if f.AffinityTimeout > 0 {
			m.affinities[sticky] = id
		}
		return m.beginCounted(frame, v, src, dst, &modelFlow{toBackend: true, backend: id})
	}
	return fmt.Errorf("%s is none of the backends %v", dst, allowed)
}

// refusal judges a packet that nobody takes.
func (m *model) refusal(frame []byte, v view, dev plan.Device, got result) error {
	if v.protocol == lb.TCP || !mayBegin(frame, v) {
		return got.wantReset(frame, v, m)
	}
	src, dst, err := got.ends(frame, v)
	if err != nil {
		return err
	}
	if want := at(own(dev, v), 0); dst != want {
		return fmt.Errorf("refused by %s, want %s", dst, want)
	}
	return m.begin(v, src, dst, v.src.Port(), &modelFlow{refused: true})
}
