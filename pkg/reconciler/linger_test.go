package reconciler

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/headgate/headgate/pkg/lb"
)

func TestAServiceThatIsMadeAgainTellsNoSocket(t *testing.T) {
	inBubble(t, &fake{}, func(t *testing.T, b *bench) {
		b.begin(web(1, 1, 2))
		b.Update(without(1))
		pass(lingerFor - time.Millisecond)
		want(t, "frontends without the Service", map[string][]string{}, backendsOf(b.dp.content()))
		b.Update(web(1))
		pass(lingerFor - time.Millisecond)
		b.Update(web(1, 1, 2))
		pass(time.Minute)
		want(t, "told", []string(nil), b.dp.lost())

		b.Update(without(1))
		pass(time.Minute)
		want(t, "told after the Service", []string{"1m6.298s lost 10.244.1.1:8080/TCP", "1m6.298s lost 10.244.1.2:8080/TCP"}, slices.Sorted(slices.Values(b.dp.lost())))
		want(t, "left behind", "address 192.0.2.1 node\n", b.dp.content().String())
	})
}

// An agent that starts does not know when a Service was deleted.
func TestAnAgentThatStartsEndsWhatWasDeleted(t *testing.T) {
	dp := inForce(t, web(1, 1))
	inBubble(t, dp, func(t *testing.T, b *bench) {
		b.begin(web(2, 1))
		pass(time.Second)
		want(t, "frontends", 1, len(b.dp.content().Frontends))
	})
}

func TestDeletedServicesGiveUpRoomThatOthersNeed(t *testing.T) {
	for _, c := range []struct {
		name       string
		goes, come int
		lingers    bool
	}{
		{"few go, and there is room", 10, 10, true},
		{"many go", 25, 0, false},
		{"few go, and others crowd the maps", 10, 25, false},
		{"few go, and others need their room", 10, 65, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, &fake{grace: graceTakes, prepares: 2 * time.Minute, room: roomFor(100)}, func(t *testing.T, b *bench) {
				b.begin(fleet(0, 100))
				b.Update(gone(fleet(0, c.goes)))
				pass(lingerFor - 3*graceTakes) // all else of them has gone
				b.Update(fleet(100, 100+c.come))
				pass(2 * graceTakes)
				formers := 0
				for _, f := range b.dp.content().Frontends {
					if f.Former {
						formers++
					}
				}
				want(t, "deleted Services linger", c.lingers, formers == c.goes)
				want(t, "frontends in force", 100-c.goes+c.come, len(b.dp.content().Frontends)-formers)
				pass(time.Minute)
				want(t, "growths of maps", 0, int(b.dp.grown.Load()))
			})
		})
	}
}

// The source cannot read the Service that is made again.
func TestADeletedServiceThatCannotBeReadEndsInTime(t *testing.T) {
	inBubble(t, &fake{}, func(t *testing.T, b *bench) {
		b.begin(web(1, 1, 2))
		b.Update(without(1))
		pass(time.Second)
		b.Update(lb.Update{Frozen: map[lb.ServiceName]bool{{Namespace: "default", Name: "web-1"}: true}})
		pass(lingerFor - time.Second + time.Millisecond)
		want(t, "frontends", 0, len(b.dp.content().Frontends))
		pass(time.Minute)
	})
}

// TestServicesThatComeAndGoLeaveNothing has few Services at few addresses, some operations of which the kernel refuses. An
// agent that starts would change nothing at any time, and nothing is left once all have gone.
func TestServicesThatComeAndGoLeaveNothing(t *testing.T) {
	at := func(u lb.Update, n byte) lb.Update {
		for _, s := range u.Services {
			s.ClusterIPs = []netip.Addr{netip.AddrFrom4([4]byte{10, 96, 0, n})}
		}
		return u
	}
	for seed := range uint64(30) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			chance := rand.New(rand.NewPCG(seed, 1))
			refuses := false
			dp := &fake{grace: graceTakes, fail: func(string) error {
				if refuses && chance.IntN(20) == 0 {
					return errors.New("refused")
				}
				return nil
			}}
			inBubble(t, dp, func(t *testing.T, b *bench) {
				b.begin(web(1, 1, 2))
				refuses = seed%3 > 0
				for range 150 {
					n, m, e := byte(1+chance.IntN(4)), byte(1+chance.IntN(5)), byte(chance.IntN(3))
					b.Update([]lb.Update{without(n), without(n), at(web(n, 1, 2), m), at(draining(3*time.Second, n, e), m), web(n), web(n, 1, 2)}[chance.IntN(6)])
					pass(time.Duration(chance.IntN(900)) * time.Millisecond)
					if err := b.dp.content().Check(); err != nil {
						t.Fatal(err)
					}
					if !refuses {
						want(t, "differences", []string(nil), b.diff(t))
					}
				}
				refuses = false
				for n := range byte(5) {
					b.Update(without(n))
				}
				pass(2 * time.Minute)
				want(t, "left", "address 192.0.2.1 node\n", b.dp.content().String())
			})
		})
	}
}
