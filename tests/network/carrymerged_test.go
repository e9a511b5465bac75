package network

import (
	"errors"
	"net"
	"testing"
	"time"
)

// TestLargePacketsArePassedOn has a home pass large packets, which no device has cut yet, on in the form and family
// in which they came. It drops and counts those that would leave in the other family.
func TestLargePacketsArePassedOn(t *testing.T) {
	for _, u := range []underlay{
		{name: "nodes of IPv4", mtu: 1500},
		{name: "nodes of IPv6", mtu: 1500, ipv6: true},
		{name: "the passing node carries over the other family", mtu: 1500, both: true},
	} {
		t.Run(u.name, func(t *testing.T) {
			f := newFabricOver(t, "dsr", u)
			f.startCarrying(t, 1)
			passing, conns := f.nodes[2], f.moved(t)
			was := passing.peerCounts(t)
			dropped := passing.drops(t)["carried"]
			for _, conn := range conns {
				if !u.both {
					mustTake(t, conn, 8<<20)
					continue
				}
				if err := conn.SetDeadline(time.Now().Add(time.Second)); err != nil {
					t.Fatal(err)
				}
				_, _, _ = take(conn, 64<<10) // most of it is dropped
			}
			now := passing.peerCounts(t)
			dropped = passing.drops(t)["carried"] - dropped
			mean := (now.CarriedBytes - was.CarriedBytes) / max(now.PassedOn-was.PassedOn, 1)
			t.Logf("%d packets were passed on, of %d bytes in the mean; %d were dropped", now.PassedOn-was.PassedOn, mean, dropped)
			if !u.both && mean < 3000 {
				t.Error("they are cut")
			}
			if u.both != (dropped > 0) {
				t.Errorf("%d packets were dropped", dropped)
			}
		})
	}
}

// moved returns a connection of each family to the second node, whose packets the third one gets and passes on.
func (f *fabric) moved(t *testing.T) (conns []net.Conn) {
	t.Helper()
	for _, family := range families {
		conn, err := f.client.dial("tcp", carriedAt[family])
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		mustTake(t, conn, 1)
		conns = append(conns, conn)
	}
	f.endpoints([]int{2})
	eventually(t, "packets are passed on", func() error {
		for _, conn := range conns {
			mustTake(t, conn, 1)
		}
		if f.nodes[2].peerCounts(t).PassedOn == 0 {
			return errors.New("none yet")
		}
		return nil
	})
	return conns
}

// mustTake has a server take so many bytes.
func mustTake(t *testing.T, conn net.Conn, size int64) {
	t.Helper()
	if _, _, err := take(conn, size); err != nil {
		t.Fatal(err)
	}
}
