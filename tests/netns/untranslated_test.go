package netns_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/headgate/headgate/pkg/datapath"
	"github.com/headgate/headgate/tests/testenv"
)

// untranslated returns the frontends of the untranslated sockets, in order.
func (n *node) untranslated() (all []string) {
	n.tb.Helper()
	r, err := n.dp.Reader()
	if err != nil {
		n.tb.Fatal(err)
	}
	defer r.Close()
	sockets, err := r.Untranslated()
	if err != nil {
		n.tb.Fatal(err)
	}
	for _, s := range sockets {
		all = append(all, s.Protocol+" "+s.Frontend.String())
	}
	slices.Sort(all)
	return all
}

// mustConnected returns a UDP socket that is connected to each address.
func mustConnected(tb testing.TB, k kind, addresses ...string) (all []*socket) {
	tb.Helper()
	for _, a := range addresses {
		s := mustSocket(tb, k, unix.SOCK_DGRAM)
		s.mustConnect(at(a))
		all = append(all, s)
	}
	return all
}

// toldNow returns of which sockets somebody has ended the connection.
func toldNow(sockets []*socket) (all []int) {
	for i, s := range sockets {
		if s.ended() {
			all = append(all, i)
		}
	}
	return all
}

// udpAddresses are a ClusterIP, a NodePort by two addresses of the node, an address of the
// node without a Service, and a backend, by family.
func udpAddresses(k kind) []string {
	if k == inet6 {
		return []string{"[fd00:96::53]:53", "[2001:db8::1]:30053", "[::1]:30053", "[2001:db8::1]:30054", "[fd00:244::53]:8053"}
	}
	return []string{"10.96.0.53:53", "192.0.2.1:30053", "127.0.0.1:30053", "192.0.2.1:30054", "10.244.0.53:8053"}
}

func TestSocketsFromBeforeTheProgramsAreFoundAndTold(t *testing.T) {
	forEachKind(t, func(t *testing.T, k kind) {
		for _, a := range []string{"192.0.2.1", "2001:db8::1", "10.96.0.53", "fd00:96::53"} { // else there is no route
			testenv.AddAddress(t, a)
		}
		to := udpAddresses(k)
		b := mustServe(t, to[4]+"/UDP")
		before := mustConnected(t, k, to...)
		n := mustNode(t)
		n.setAddresses(nodeAddresses)
		n.set("dns", frontend(to[0]+"/UDP", b))
		port := frontend("0.0.0.0:30053/UDP", b)
		if k == inet6 {
			port = frontend("[::]:30053/UDP", b)
		}
		n.set("port", port)
		after := mustConnected(t, k, to[0], to[1], to[4])
		want := []string{"UDP " + to[0], "UDP " + to[1], "UDP " + to[2]}
		slices.Sort(want)
		if got := n.untranslated(); !slices.Equal(got, want) {
			t.Errorf("untranslated are %q, want %q", got, want)
		}
		r, err := n.dp.Reader()
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		if told, err := r.TellUntranslated(); err != nil || told != 3 {
			t.Errorf("told %d sockets (%v), want 3", told, err)
		}
		if got := toldNow(before); !slices.Equal(got, []int{0, 1, 2}) {
			t.Errorf("of the sockets from before these were told: %v, want 0, 1, 2", got)
		}
		if got := toldNow(after); len(got) > 0 {
			t.Errorf("of the sockets with a backend these were told: %v, want none", got)
		}
		again := mustConnected(t, k, to[0], to[1], to[2])
		if got := n.untranslated(); len(got) > 0 {
			t.Errorf("connected again, untranslated are %q, want none", got)
		}
		for i, s := range again {
			s.send("who")
			if who, _ := s.receive(); who != b.name() {
				t.Errorf("connected again to %s, %q answers, want %q", to[i], who, b.name())
			}
		}
	})
}

// Sockets of other cgroups ask no program of ours: to tell them would help nobody.
func TestSocketsThatNobodyBalancesAreNotTold(t *testing.T) {
	below := filepath.Join(testenv.Cgroup(t), "below")
	if err := os.Mkdir(below, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.Remove(below); err != nil {
			t.Error(err)
		}
	})
	to := udpAddresses(inet)
	testenv.AddAddress(t, "10.96.0.53") // else there is no route
	b := mustServe(t, to[4]+"/UDP")
	mustConnected(t, inet, to[0]) // of this process, which is not below
	cfg := config(t)
	cfg.Cgroup = below
	n := mustNodeOf(t, cfg)
	n.set("dns", frontend(to[0]+"/UDP", b))
	if got := n.untranslated(); len(got) > 0 {
		t.Errorf("untranslated are %q, want none", got)
	}
}

// Nobody would move a datagram socket that talks to a backend once the programs are gone.
func TestRemovingHeadgateTellsDatagramSocketsWithABackend(t *testing.T) {
	for _, tc := range []struct {
		name    string
		entries uint32 // slots for the first entry of a socket
	}{{"slots", 1 << 12}, {"storage", 1}} {
		t.Run(tc.name, func(t *testing.T) {
			udp, tcp := mustServe(t, "10.244.0.53:8053/UDP"), mustServe(t, "10.244.0.80:8080/TCP")
			cfg := config(t)
			cfg.SocketEntries = tc.entries
			n := mustNodeOf(t, cfg)
			n.set("dns", frontend("10.96.0.53:53/UDP", udp))
			n.set("web", frontend("10.96.0.80:80/TCP", tcp))
			sockets := mustConnected(t, inet, "10.96.0.53:53", "10.96.0.53:53", udp.addr().String())
			unconnected := mustSocket(t, inet, unix.SOCK_DGRAM)
			unconnected.ask(at("10.96.0.53:53"))
			stream, _ := dialTCP(t, inet, at("10.96.0.80:80"))
			n.dp.Close()
			done, err := datapath.Remove(cfg.Root, nil)
			if err != nil || done.Untold != nil || done.Told != 2 {
				t.Errorf("told %d sockets (%v, %v), want 2", done.Told, err, done.Untold)
			}
			if got := toldNow(append(sockets, unconnected, stream)); !slices.Equal(got, []int{0, 1}) {
				t.Errorf("told are sockets %v, want 0 and 1", got)
			}
		})
	}
}
