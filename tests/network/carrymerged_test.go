package network

import (
	"errors"
	"net"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestLargePacketsArePassedOn has a home pass large packets on in the form in which they came: by UDP if no device has cut
// them, by IP in IP if it has merged them. It drops and counts large packets of IP in IP that would leave by UDP.
func TestLargePacketsArePassedOn(t *testing.T) {
	for _, c := range []struct {
		name       string
		ipv6, ipip bool
	}{{"nodes of IPv4", false, false}, {"nodes of IPv6", true, false}, {"nodes of IPv4, IP in IP", false, true}, {"nodes of IPv6, IP in IP", true, true}} {
		t.Run(c.name, func(t *testing.T) {
			f := newFabricOver(t, "dsr", underlay{mtu: 1500, ipip: c.ipip, ipv6: c.ipv6})
			f.startCarrying(t, 1)
			passing := f.nodes[2]
			passing.ethtool("eth0", unix.ETHTOOL_SGRO, 1)
			var conns []net.Conn
			for _, family := range families {
				conn, err := f.client.dial("tcp", carriedAt[family])
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close()
				mustTake(t, conn, 1)
				conns = append(conns, conn)
			}
			f.endpoints([]int{2})
			eventually(t, "packets are passed on", func() error {
				for _, conn := range conns {
					mustTake(t, conn, 1)
				}
				if passing.peerCounts(t).PassedOn == 0 {
					return errors.New("none yet")
				}
				return nil
			})
			was := passing.peerCounts(t)
			for _, conn := range conns {
				mustTake(t, conn, 8<<20)
			}
			now := passing.peerCounts(t)
			mean := (now.CarriedBytes - was.CarriedBytes) / (now.PassedOn - was.PassedOn)
			if t.Logf("%d packets were passed on, of %d bytes in the mean", now.PassedOn-was.PassedOn, mean); mean < 3000 {
				t.Error("they are cut")
			}
			if !c.ipip {
				return
			}
			passing.options = slices.DeleteFunc(passing.options, func(o string) bool { return o == "--dsr-encapsulation" || o == "ipip" })
			passing.restart(t, f)
			before := passing.drops(t)["carried"]
			for _, conn := range conns {
				mustTake(t, conn, 1)
				if err := conn.SetDeadline(time.Now().Add(time.Second)); err != nil {
					t.Fatal(err)
				}
				_, _, _ = take(conn, 64<<10) // most of it is dropped
			}
			if dropped := passing.drops(t)["carried"] - before; dropped == 0 {
				t.Error("no packet was dropped: nothing was merged")
			} else {
				t.Log(dropped, "packets were dropped")
			}
		})
	}
}

// mustTake has a server take so many bytes.
func mustTake(t *testing.T, conn net.Conn, size int64) {
	t.Helper()
	if _, _, err := take(conn, size); err != nil {
		t.Fatal(err)
	}
}
