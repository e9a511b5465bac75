package traffic

import (
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
)

func mustPlace(tb testing.TB, name string) *Place {
	tb.Helper()
	requireRoot(tb)
	spec, err := BuiltinPlace(name, testName(tb)+"-"+name)
	if err != nil {
		tb.Fatal(err)
	}
	place, err := NewPlace(spec)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := place.Close(); err != nil {
			tb.Error(err)
		}
	})
	return place
}

func TestEveryPlaceConnectsItsClientToAllServers(t *testing.T) {
	for name := range PlaceNames() {
		t.Run(name, func(t *testing.T) {
			place := mustPlace(t, name)
			job := Job{Kind: TCP, Count: 60}
			for i := range 2 * len(place.Spec.Servers) { // so that each machine has two
				machine, addrs := place.Spec.ServerAddr(i)
				mustServe(t, place.Namespace(machine), machine, addrs)
				for _, a := range addrs {
					job.Targets = append(job.Targets, netip.AddrPortFrom(a, 8080))
				}
			}
			result := mustRunIn(t, place.Namespace(place.Spec.Client), job)
			if result.Failed() > 0 {
				t.Errorf("failures: %v", result.Failures())
			}
			answers := result.Answers(func(netip.AddrPort) bool { return true })
			for _, s := range place.Spec.Servers {
				if answers[s] == 0 {
					t.Errorf("%s answers nothing: %v", s, answers)
				}
			}
		})
	}
}

// mustRunIn runs a job on the thread of a namespace.
func mustRunIn(tb testing.TB, ns *Namespace, job Job) Result {
	tb.Helper()
	client := mustClient(tb, ns, nil)
	result, err := client.Run(tb.Context(), job, nil)
	if err != nil {
		tb.Fatal(err)
	}
	return result
}

func TestPodsOfTwoNodesTalkThroughTheTunnel(t *testing.T) {
	place := mustPlace(t, "vxlan")
	machine, addrs := place.Spec.ServerAddr(1)
	if place.Machine(machine).Node != "node-b" {
		t.Fatalf("server 1 is on %s", place.Machine(machine).Node)
	}
	mustServe(t, place.Namespace(machine), machine, addrs)
	before := sentBy(t, place.Namespace("node-a"), "vx-node-b")
	result := mustRunIn(t, place.Namespace("client"), Job{Kind: TCP, Count: 10, Targets: []netip.AddrPort{netip.AddrPortFrom(addrs[0], 8080)}})
	if result.Failed() > 0 {
		t.Fatal(result.Failures())
	}
	if sent := sentBy(t, place.Namespace("node-a"), "vx-node-b") - before; sent < 40 {
		t.Errorf("the tunnel carried %d packets of 10 connections, want at least 40", sent)
	}
}

// sentBy returns how many packets a device sent.
func sentBy(tb testing.TB, ns *Namespace, device string) uint64 {
	tb.Helper()
	var packets uint64
	err := ns.Do(func() error {
		link, err := netlink.LinkByName(device)
		if err == nil {
			packets = link.Attrs().Statistics.TxPackets
		}
		return err
	})
	if err != nil {
		tb.Fatal(err)
	}
	return packets
}

func TestTheClientOfAPlaceHasManyAddresses(t *testing.T) {
	place := mustPlace(t, "pair")
	machine, addrs := place.Spec.ServerAddr(0)
	server := mustServe(t, place.Namespace(machine), machine, addrs)
	err := place.Namespace("client").Do(func() error {
		for i, source := range []string{"10.250.3.4:0", "[fd00:250::99:1]:0"} {
			from := net.TCPAddrFromAddrPort(netip.MustParseAddrPort(source))
			conn, err := (&net.Dialer{LocalAddr: from}).Dial("tcp", netip.AddrPortFrom(addrs[i], 8080).String())
			if err != nil {
				return err
			}
			if _, err := io.ReadAll(conn); err != nil { // the server closes when it has answered
				return err
			}
			_ = conn.Close()
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	if count, _ := server.TCP(); count != 2 {
		t.Errorf("%d connections arrived, want 2", count)
	}
}

func TestAnUnknownPlaceIsNamed(t *testing.T) {
	_, err := BuiltinPlace("moon", "x")
	if err == nil || !strings.Contains(err.Error(), `no built-in place is named "moon": there are node, pair, vxlan, zones`) {
		t.Errorf("error is %v", err)
	}
}

func TestAPlaceLeavesNothingBehind(t *testing.T) {
	place := mustPlace(t, "zones")
	paths := []string{}
	for _, m := range place.Spec.Machines {
		paths = append(paths, place.Namespace(m.Name).Path())
	}
	if err := place.Close(); err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		if _, err := os.Stat(path); !os.IsNotExist(err) {
			t.Errorf("%s is left: %v", path, err)
		}
	}
}
