package netns_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/headgate/headgate/pkg/datapath"
	"github.com/headgate/headgate/pkg/plan"
	"github.com/headgate/headgate/tests/testenv"
)

// roomy has room for many Services from the beginning: growing takes long.
func roomy(cfg datapath.Config) datapath.Config {
	cfg.Sizes = plan.Sizes{Frontends: 256, Slots: 512, Backends: 512, Services: 256, Addresses: 256}
	return cfg
}

// manyDNS makes UDP Services of two backends each, and returns their addresses.
func manyDNS(t *testing.T, n *node, k kind, services int) (vips []string) {
	t.Helper()
	for i := range services {
		vip := fmt.Sprintf(k.pick("10.96.1.%d:53/UDP", "[fd00:96::1:%x]:53/UDP"), i+1)
		one := mustServe(t, fmt.Sprintf(k.pick("10.244.1.%d:5353/UDP", "[fd00:244::1:%x]:5353/UDP"), i+1))
		two := mustServe(t, fmt.Sprintf(k.pick("10.244.2.%d:5353/UDP", "[fd00:244::2:%x]:5353/UDP"), i+1))
		n.set(fmt.Sprint("dns", i), knowing(vip, one, two))
		vips = append(vips, vip)
	}
	return vips
}

// One socket may talk to any number of Services in turn, as QUIC clients, resolvers
// and SIP proxies do.
func TestAnUnconnectedUDPSocketStaysWithTheBackendOfEachService(t *testing.T) {
	for _, k := range []kind{inet, inet6} {
		t.Run(k.name, func(t *testing.T) {
			n := mustNodeOf(t, roomy(config(t)))
			vips := manyDNS(t, n, k, 150) // more than there is room for
			for _, services := range []int{4, 6, 10, 100, 150} {
				staysWithEach(t, n, k, vips[:services])
			}
		})
	}
}

func staysWithEach(t *testing.T, n *node, k kind, vips []string) {
	t.Helper()
	s := mustSocket(t, k, unix.SOCK_DGRAM)
	first := map[string]string{}
	before := n.status().Counters["socket_entry_replaced"]
	for round := range 5 {
		for _, vip := range vips {
			who := s.ask(at(vip)) // the answer comes from there
			if round > 0 && who != first[vip] {
				t.Errorf("%d Services, round %d: %s is answered by %q, was by %q", len(vips), round, vip, who, first[vip])
			}
			first[vip] = who
		}
	}
	replaced := n.status().Counters["socket_entry_replaced"] - before
	if some := replaced > 0; some != (len(vips) == 150) {
		t.Errorf("%d Services: %d entries are counted that made room", len(vips), replaced)
	}
	if got := n.allInFlight(); got != min(len(vips), 1+4+128) {
		t.Errorf("%d Services: %d are in flight", len(vips), got)
	}
	s.close()
	if got := n.allInFlight(); got != 0 {
		t.Errorf("%d Services: the socket is closed, and %d are in flight", len(vips), got)
	}
}

// What a socket keeps in its list is found by a recount, and outlives the agent and
// an upgrade.
func TestEntriesOfASocketWithManyServicesOutliveUpgrades(t *testing.T) {
	testenv.NeedStorageIterators(t)
	forEachKind(t, func(t *testing.T, k kind) {
		n := mustNodeOf(t, roomy(config(t)))
		vips := manyDNS(t, n, k, 40)
		s := mustSocket(t, k, unix.SOCK_DGRAM)
		first := map[string]string{}
		for _, vip := range vips {
			first[vip] = s.ask(at(vip))
		}
		if corrected, err := n.dp.Recount(); corrected != 0 || err != nil {
			t.Errorf("a recount of what is right corrects %d backends: %v", corrected, err)
		}
		for _, entries := range []uint32{1 << 12, 1 << 13} { // adopted, replaced
			n.dp.Close()
			n.cfg.SocketEntries = entries
			n = mustNodeOf(t, n.cfg)
			for _, vip := range vips {
				if who := s.ask(at(vip)); who != first[vip] {
					t.Errorf("with room for %d entries %s is answered by %q, was by %q", entries, vip, who, first[vip])
				}
			}
			if got := n.allInFlight(); got != len(vips) {
				t.Errorf("with room for %d entries %d are in flight, want %d", entries, got, len(vips))
			}
		}
		s.mustConnect(at(vips[0]))
		if got := n.allInFlight(); got != 1 {
			t.Errorf("the socket is connected to one Service, and %d are in flight", got)
		}
	})
}

// A list is for sockets that need it: retired entries make room first.
func TestASocketWithOneServiceNeedsNoList(t *testing.T) {
	forEachPlace(t, func(t *testing.T, k kind, n *node) {
		b := []*backend{udpBackend(t, k, 1), udpBackend(t, k, 2)}
		vip := udpVIP(k, 1)
		s := mustSocket(t, k, unix.SOCK_DGRAM)
		for i := range 20 {
			n.set("dns", frontend(vip, b[i%2]))
			if who := s.ask(at(vip)); who != b[i%2].name() {
				t.Errorf("%q answers, want %q", who, b[i%2].name())
			}
		}
		if n.hasList(s) {
			t.Error("the socket has a list of many entries")
		}
		for _, other := range manyDNS(t, n, k, 6) {
			s.ask(at(other))
		}
		if !n.hasList(s) {
			t.Error("with seven Services the socket has no list of many entries: the test tests nothing")
		}
	})
}

// hasList says whether a socket has a list of many entries.
func (n *node) hasList(s *socket) bool {
	n.tb.Helper()
	m := mustPinned(n.tb, n.path("maps", "many_entries"))
	err := m.Lookup(uint32(s.fd), make([]byte, m.ValueSize()))
	if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		n.tb.Fatal(err)
	}
	return err == nil
}

// Whatever entry a socket has of a Service, headgate trace tells of it.
func TestEachServiceOfASocketIsTraced(t *testing.T) {
	for _, k := range []kind{inet, inet6} {
		t.Run(k.name, func(t *testing.T) {
			n := mustNodeOf(t, roomy(config(t)))
			vips := manyDNS(t, n, k, 1+4+128)
			r, err := n.dp.Reader()
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			tracer, err := r.NewTracer()
			if err != nil {
				t.Fatal(err)
			}
			defer tracer.Close()
			s := mustSocket(t, k, unix.SOCK_DGRAM)
			for i, vip := range vips {
				who := s.ask(at(vip))
				told, ok, err := tracer.Read(time.Now().Add(10 * time.Second))
				if !ok || err != nil {
					t.Fatalf("Service %d is not told of: %v", i+1, err)
				}
				if told.Call != "sendmsg" || told.Asked.String() != vip || told.Got.String() != who || told.Refused {
					t.Errorf("Service %d, %s, answered by %s: told %+v", i+1, vip, who, told)
				}
			}
		})
	}
}
