package reconciler

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/plan"
)

// heard is a prober that only listens.
type heard struct {
	mu  sync.Mutex
	got []string
}

func (h *heard) SetFrontends(name lb.ServiceName, frontends []lb.Frontend) {
	h.mu.Lock()
	defer h.mu.Unlock()
	_, backends := lb.Probed(frontends)
	h.got = append(h.got, fmt.Sprintf("%s %v", name, backends))
}

// Eject implements ejecter.
func (f *fake) Eject(b lb.AddrPort, eject bool, d time.Duration) (bool, error) {
	return true, f.call(fmt.Sprintf("eject %s %v for %v", b, eject, d))
}

func TestProbersHearOfServicesAsTheyAre(t *testing.T) {
	inBubble(t, &fake{}, func(t *testing.T, b *bench) {
		h := &heard{}
		b.Probe(h)
		probed := func(endpoints ...byte) lb.Update {
			u := web(1, endpoints...)
			for _, s := range u.Services {
				s.Probe = lb.Probe{Kind: lb.TCPProbe, Interval: time.Second}
			}
			return u
		}
		b.begin(probed(1, 2))
		u := probed(1)
		for _, s := range u.Services { // what it asks for now makes no sense
			s.KeepPolicy = true
		}
		b.Update(u)
		synctest.Wait()
		b.Update(without(1))
		synctest.Wait()
		want(t, "heard", []string{
			"default/web-1 [10.244.1.1:8080/TCP 10.244.1.2:8080/TCP]", "default/web-1 [10.244.1.1:8080/TCP]", "default/web-1 []",
		}, h.got)
	})
}

// What is refused changes nothing of what is asked: neither of what a Service keeps, nor of
// one that has nothing.
func TestProbersHearOfWhatIsInForce(t *testing.T) {
	probed := func(n byte, endpoints ...byte) lb.Update {
		u := web(n, endpoints...)
		for _, s := range u.Services {
			s.Probe = lb.Probe{Kind: lb.TCPProbe, Interval: time.Second}
		}
		return u
	}
	inBubbleOf(t, plan.Sizes{Backends: 2}, &fake{}, func(t *testing.T, b *bench) {
		h := &heard{}
		b.Probe(h)
		b.begin(probed(1, 1, 2))
		b.Update(probed(1, 1, 2, 3))
		synctest.Wait()
		b.Update(probed(2, 1, 2, 3, 4))
		synctest.Wait()
		want(t, "heard", []string{"default/web-1 [10.244.1.1:8080/TCP 10.244.1.2:8080/TCP]", "default/web-2 []"}, h.got)
	})
}

func TestVerdictsComeToTheDatapath(t *testing.T) {
	dp := &fake{fail: func(call string) error {
		if strings.Contains(call, "false") {
			return errors.New("no")
		}
		return nil
	}}
	inBubble(t, dp, func(t *testing.T, b *bench) {
		b.begin(web(1, 1))
		b.dp.taken()
		backend := lb.AddrPort{Addr: netip.MustParseAddr("10.244.1.1"), Port: 8080, Protocol: lb.TCP}
		b.Judge(t.Context(), backend, true, time.Minute)
		b.Judge(t.Context(), backend, false, 0) // fails, which is said
		synctest.Wait()
		want(t, "calls", []string{"0s eject 10.244.1.1:8080/TCP true for 1m0s", "0s eject 10.244.1.1:8080/TCP false for 0s"}, b.dp.taken())
		if b.log.FilterMessage("record the result of a probe").Len() != 1 {
			t.Errorf("the log has %v", b.log.All())
		}
	})
}

// knows is a prober that knows how packets get to backends once it has heard of Services.
type knows struct {
	heard
	tell func()
}

func (k *knows) Settle() {
	if len(k.got) > 0 {
		k.tell()
	}
}

// Clients come as soon as the first picture is in force: how their packets get to backends is part of it.
func TestTheFirstPictureHasPeers(t *testing.T) {
	dp := &fake{}
	attached := 0
	dp.fail = func(call string) error {
		if strings.HasPrefix(call, "attach") {
			if attached++; len(dp.content().Peers) != 1 {
				t.Errorf("programs are attached while peers are %v, want one", dp.content().Peers)
			}
		}
		return nil
	}
	inBubble(t, dp, func(t *testing.T, b *bench) {
		backend := netip.MustParseAddr("192.0.2.21")
		b.Probe(&knows{tell: func() {
			b.SetPeers("edge-1", map[string]plan.Node{backend.String(): {Peer: plan.Peer{Theirs: backend, Outside: true}}})
		}})
		b.begin(web(1, 1))
		if attached == 0 {
			t.Error("no program is attached")
		}
	})
}
