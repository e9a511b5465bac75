package datapath_test

import (
	"net/netip"
	"testing"

	"github.com/headgate/headgate/pkg/datapath"
	"github.com/headgate/headgate/pkg/plan"
)

// peerOps are someOps, and a slot that named others before.
func peerOps() []plan.Op {
	return append(someOps(), plan.PutSlots{
		Table: plan.Table{Offset: 15, Size: 3},
		Slots: []plan.SlotChange{{Index: 1, To: 1, Was: plan.Owners{2, 3}}},
	})
}

func TestWhatASlotNamedBeforeIsReadWherePacketsAreCarried(t *testing.T) {
	d := mustOpen(t, config(t))
	mustApply(t, d, peerOps()...)
	c, err := d.Content()
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Owners) != 1 || c.Owners[16] != (plan.Owners{2, 3}) {
		t.Errorf("slots named before: %v", c.Owners)
	}
	mustApply(t, d, plan.ClearPeer{ID: plan.FirstPeer}, plan.DeletePeerAddress{Addr: netip.MustParseAddr("10.1.0.2")})
	if c, err = d.Content(); err != nil || len(c.Owners) != 0 || len(c.PeerAddresses) != 0 {
		t.Errorf("without peers slots named before %v, addresses of peers are %v (error %v)", c.Owners, c.PeerAddresses, err)
	}
}

func TestOfAPeerInUseWhatMayChangeDoes(t *testing.T) {
	cfg := config(t)
	d := mustOpen(t, cfg)
	ops := peerOps()
	mustApply(t, d, ops...)
	slow := plan.Peer{Theirs: netip.MustParseAddr("10.1.0.2"), Ours: netip.MustParseAddr("10.1.0.1"), Ring: plan.RingOf("node-b"), MTU: 1400, Returns: true}
	for _, p := range []plan.Peer{slow, {Theirs: slow.Ours, Ours: slow.Theirs, Ring: 7, MTU: 1280}} {
		ops = append(ops, plan.PutPeer{ID: plan.FirstPeer, Peer: p})
		mustApply(t, d, ops[len(ops)-1])
		wantContent(t, d, ops...)
	}
}

func TestPeersAndWhatTheyGotAreRead(t *testing.T) {
	cfg := config(t)
	d := mustOpen(t, cfg)
	mustApply(t, d, peerOps()...)
	if err := d.Attach(); err != nil {
		t.Fatal(err)
	}
	err := datapath.Look(d.Reader, func(r *datapath.Reader) error {
		n := 0
		for id, p := range r.Peers() {
			if n++; id != plan.FirstPeer || p.MTU != 1500 {
				t.Errorf("peer %d is %s", id, p)
			}
		}
		of, err := r.PeerAddresses()
		if err != nil {
			return err
		}
		if n != 1 || len(of) != 1 || of[netip.MustParseAddr("10.1.0.2")] != plan.FirstPeer {
			t.Errorf("%d peers, with the addresses %v", n, of)
		}
		counts, err := r.PeerCounts(plan.FirstPeer)
		if counts != (datapath.PeerCounts{}) || err != nil {
			t.Errorf("before any packet: %+v, %v", counts, err)
		}
		_, err = r.PeerCounts(1 << 20)
		if err == nil {
			t.Error("a peer that is none has counts")
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
