package packets

import (
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/headgate/headgate/pkg/datapath"
	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/plan"
)

// What headgate explain has a socket call in random states is what a socket then meets, and the
// replay leaves no trace.
func TestACallThatIsReplayedIsWhatTheSocketThenMeets(t *testing.T) {
	r := newRig(t)
	seen := map[string]int{}
	for seed := range uint64(2) {
		w := newWorld(t, r, seed+1)
		w.setCIDRs(t, v4.services, v6.services)
		reader, err := datapath.Inspect(r.root)
		must(t, err)
		calls := map[string]*datapath.SocketReplay{}
		for range 100 {
			b, protocol := pick(w, v4, v6), pick(w, lb.TCP, lb.UDP)
			to := lb.AddrPort{
				Addr:     pick(w, b.vip, b.vip, b.vip2, b.cluster, b.node, b.node, b.services.Addr(), b.remote),
				Port:     pick[uint16](w, 80, 80, 81, 30080, 30081),
				Protocol: protocol,
			}
			key := b.family() + protocol.String()
			if calls[key] == nil {
				calls[key], err = reader.NewSocketReplay(protocol, to.Addr.Is4(), "", exec.Command("/proc/self/exe", makeCalls))
				must(t, err)
				t.Cleanup(calls[key].Close)
			}
			seen[w.compareCall(t, reader, calls[key], to)]++
		}
		reader.Close()
	}
	t.Logf("seen: %v", seen)
	for _, what := range []string{"left alone", "to a backend", "to the backend that it had", "no_service", "no_service_port"} {
		if seen[what] == 0 {
			t.Errorf("no call was %s: nothing is tested", what)
		}
	}
}

// compareCall replays a call, and then has a socket make it. It returns what became of both.
func (w *world) compareCall(t *testing.T, reader *datapath.Reader, replay *datapath.SocketReplay, to lb.AddrPort) string {
	t.Helper()
	_, f, found, err := reader.Meant(to)
	must(t, err)
	had := w.hadBackend(t, reader, replay, to, f)
	before, asked := w.counters(t), netip.AddrPortFrom(to.Addr, to.Port)
	got, err := replay.Decide(to)
	must(t, err)
	if diff := cmp.Diff(before, w.counters(t)); diff != "" {
		t.Errorf("a call to %s left a trace, counters (-before +after):\n%s", to, diff)
	}
	met, reason := w.call(t, to)
	if got.Reason != reason {
		t.Errorf("%s: the replay is refused for %q, the socket for %q", to, got.Reason, reason)
	}
	switch {
	case reason != "":
		return reason
	case (got.To == asked) != (met == asked):
		t.Errorf("%s: the replay goes to %s, the socket to %s", to, got.To, met)
	case met == asked:
		return "left alone"
	case had.IsValid():
		if got.To != had || met != had {
			t.Errorf("%s: the replay goes to %s, the socket to %s, and session affinity is for %s", to, got.To, met, had)
		}
		return "to the backend that it had"
	case !found || !isInternalOf(t, reader, f, got.To) || !isInternalOf(t, reader, f, met):
		t.Errorf("%s: the replay goes to %s, the socket to %s, and the frontend (%v) has not both", to, got.To, met, found)
	}
	return "to a backend"
}

// hadBackend has the replay know which backend this namespace had last of a Service, and returns it.
func (w *world) hadBackend(t *testing.T, reader *datapath.Reader, replay *datapath.SocketReplay, to lb.AddrPort, f plan.Frontend) (had netip.AddrPort) {
	t.Helper()
	if f.AffinityTimeout == 0 {
		return had
	}
	cookie, err := datapath.OwnNamespace()
	must(t, err)
	client := datapath.LocalClient(cookie, to.Addr.Is4())
	must(t, replay.Remember(reader, client, f.Service))
	must(t, reader.Affinities(func(a datapath.Affinity) error {
		b := reader.Backend(a.Backend).At
		at := netip.AddrPortFrom(b.Addr, b.Port)
		if a.Client == client && a.Service == f.Service && isInternalOf(t, reader, f, at) {
			had = at
		}
		return nil
	}))
	return had
}

// call has a socket of this process ask, and returns where it goes or why it is refused. A
// packet that it sends finds no route.
func (w *world) call(t *testing.T, to lb.AddrPort) (met netip.AddrPort, reason string) {
	t.Helper()
	before := w.counters(t)
	family, end := unix.AF_INET6, unix.Sockaddr(&unix.SockaddrInet6{Port: int(to.Port), Addr: to.Addr.As16()})
	if to.Addr.Is4() {
		family, end = unix.AF_INET, &unix.SockaddrInet4{Port: int(to.Port), Addr: to.Addr.As4()}
	}
	kind := map[lb.Protocol]int{lb.TCP: unix.SOCK_STREAM, lb.UDP: unix.SOCK_DGRAM}[to.Protocol]
	socket, err := unix.Socket(family, kind|unix.SOCK_NONBLOCK, 0)
	must(t, err)
	defer unix.Close(socket)
	if to.Protocol == lb.UDP {
		_ = unix.Sendto(socket, nil, 0, end) // there is no route, but the program has decided
	} else {
		_ = unix.Connect(socket, end)
	}
	for name, n := range w.counters(t) {
		if drop, ok := strings.CutPrefix(name, "drop "); ok && n > before[name] && !strings.Contains(drop, " of ") {
			reason = drop
		}
	}
	met = netip.AddrPortFrom(to.Addr, to.Port)
	if backend, ok := w.entryOf(t, socket); ok {
		met = backend
	}
	return met, reason
}

// entryOf returns the backend of the socket NAT entry of a socket.
func (w *world) entryOf(t *testing.T, socket int) (backend netip.AddrPort, ok bool) {
	t.Helper()
	cookie, err := unix.GetsockoptUint64(socket, unix.SOL_SOCKET, unix.SO_COOKIE)
	must(t, err)
	entries, err := ebpf.LoadPinnedMap(w.root+"/maps/socket_nat", nil)
	must(t, err)
	defer entries.Close()
	type end struct {
		Addr [16]byte
		Port [2]byte
		_    [2]byte
	}
	var slot struct {
		Owner             uint64
		Frontend, Backend end
		ID, Slot          uint32
		Netns             uint64
	}
	must(t, entries.Lookup(uint32(cookie)&(entries.MaxEntries()-1), &slot))
	b := slot.Backend
	return netip.AddrPortFrom(netip.AddrFrom16(b.Addr).Unmap(), uint16(b.Port[0])<<8|uint16(b.Port[1])), slot.Owner == cookie
}

// isInternalOf says whether an address is that of a backend that a frontend has for clients on this node.
func isInternalOf(t *testing.T, r *datapath.Reader, f plan.Frontend, at netip.AddrPort) bool {
	t.Helper()
	ids, err := r.Slots(f.Views[lb.Internal].Table)
	must(t, err)
	return slices.ContainsFunc(ids, func(id uint32) bool {
		b := r.Backend(id).At
		return netip.AddrPortFrom(b.Addr, b.Port) == at
	})
}
