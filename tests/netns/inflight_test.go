package netns_test

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"slices"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/headgate/headgate/pkg/datapath"
	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/tests/testenv"
)

// SocketEntries that find no room in the fast map are counted as the others are.
func TestEverySocketEntryIsInFlightUntilItsSocketIsClosed(t *testing.T) {
	n := mustNode(t)
	backends := silent(5)
	n.set("spread", spreadOver(lb.Random, backends))
	sockets := connectMany(t, 6000) // the map has room for 4096
	if got := n.inFlight(backends); sum(got) != len(sockets) {
		t.Errorf("%v in flight, want %d in sum", got, len(sockets))
	}
	for _, s := range sockets[:3000] { // again, to any of them
		s.mustConnect(at(spreadVIP))
	}
	if got := n.inFlight(backends); sum(got) != len(sockets) {
		t.Errorf("%v in flight after connecting anew, want %d in sum", got, len(sockets))
	}
	for _, s := range sockets[:1000] { // past the Service
		s.mustConnect(at("127.0.0.1:9"))
	}
	if got := n.inFlight(backends); sum(got) != len(sockets)-1000 {
		t.Errorf("%v in flight after connecting elsewhere, want %d in sum", got, len(sockets)-1000)
	}
	closeAll(sockets)
	if got := n.inFlight(backends); sum(got) != 0 {
		t.Errorf("all sockets are closed, in flight is %v", got)
	}
}

func TestWhatWasMiscountedIsCorrected(t *testing.T) {
	testenv.NeedStorageIterators(t)
	n := mustNode(t)
	backends := silent(3)
	n.set("spread", spreadOver(lb.RR, backends))
	held := connectMany(t, 6000) // 2000 each, some in socket storage
	for range 2 {
		corrected, err := n.dp.Recount()
		if got := n.inFlight(backends); err != nil || corrected != 0 || sum(got) != len(held) {
			t.Fatalf("a recount of what is right corrects %d backends: %v, %v", corrected, got, err)
		}
	}
	for at, wrong := range map[int]int32{0: 5000, 1: -1500, 2: 1} {
		n.miscount(n.backendID(&backend{at: backends[at]}), wrong)
	}
	if corrected, err := n.dp.Recount(); corrected != 3 || err != nil {
		t.Errorf("%d backends are corrected, want 3: %v", corrected, err)
	}
	if got := n.inFlight(backends); !slices.Equal(got, []int{2000, 2000, 2000}) {
		t.Errorf("%v in flight, want 2000 each", got)
	}
	closeAll(held)
	if got := n.inFlight(backends); sum(got) != 0 {
		t.Errorf("all sockets are closed, in flight is %v", got)
	}
}

// Below zero the next connections would not count.
func TestInFlightIsNeverNegative(t *testing.T) {
	n := mustNode(t)
	backends := silent(1)
	n.set("spread", spreadOver(lb.Random, backends))
	held := connectMany(t, 20)
	n.miscount(n.backendID(&backend{at: backends[0]}), -15)
	closeAll(held)
	if got := n.inFlight(backends); sum(got) != 0 {
		t.Errorf("%v in flight, all sockets are closed", got)
	}
	connectMany(t, 3)
	if got := n.inFlight(backends); sum(got) != 3 {
		t.Errorf("%v in flight, want the 3 that have come since", got)
	}
}

// miscount adds to what a backend says is in flight.
func (n *node) miscount(id uint32, wrong int32) {
	n.tb.Helper()
	m, err := ebpf.LoadPinnedMap(n.path("maps", "backends"), nil)
	if err != nil {
		n.tb.Fatal(err)
	}
	defer m.Close()
	value := make([]byte, m.ValueSize())
	if err := m.Lookup(id, value); err != nil {
		n.tb.Fatal(err)
	}
	const inFlight = 20 // behind the address
	field := value[inFlight:]
	binary.NativeEndian.PutUint32(field, uint32(int32(binary.NativeEndian.Uint32(field))+wrong))
	if err := m.Put(id, value); err != nil {
		n.tb.Fatal(err)
	}
}

// The socket is still there, but nothing is in flight.
func TestAConnectionThatFailsIsInFlightNoMore(t *testing.T) {
	n := mustNode(t)
	nobody := lb.AddrPort{Addr: netip.MustParseAddr("127.1.0.1"), Port: 9, Protocol: lb.TCP}
	f := spreadOver(lb.Latency, []lb.AddrPort{nobody})
	f.AddrPort = mustAddrPort("10.96.7.7:80/TCP")
	n.set("spread", f)
	s := mustSocket(t, inet, unix.SOCK_STREAM)
	if err := s.connect(at("10.96.7.7:80")); !errors.Is(err, unix.ECONNREFUSED) {
		t.Fatalf("connect: %v", err)
	}
	if got := n.inFlight(f.Members); sum(got) != 0 {
		t.Errorf("%v in flight after a refusal", got)
	}
	s.close()
	if got := n.inFlight(f.Members); sum(got) != 0 {
		t.Errorf("%v in flight after the socket is closed", got)
	}
}

func TestAnswerTimesAreMeasuredWhereTheyAreAskedFor(t *testing.T) {
	n := mustNode(t)
	b := mustServe(t, "10.244.0.1:8080/TCP")
	f := frontend("10.96.7.7:80/TCP", b, mustServe(t, "10.244.0.2:8080/TCP"))
	for _, c := range []struct {
		algorithm lb.Algorithm
		known     bool
	}{{lb.Random, false}, {lb.LC, false}, {lb.Latency, true}} {
		f.Algorithm = c.algorithm
		n.set("spread", f)
		for range 20 {
			conn, _ := dialTCP(t, inet, at("10.96.7.7:80"))
			conn.close()
		}
		n.inspect(func(i *datapath.Reader) error {
			if took := i.Backend(n.backendID(b)).Response; took > 0 != c.known {
				t.Errorf("%s: response time %s", c.algorithm, took)
			}
			return nil
		})
	}
}
