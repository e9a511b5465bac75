package packets

import (
	"net/netip"
	"testing"

	"github.com/headgate/headgate/pkg/datapath"
	"github.com/headgate/headgate/pkg/lb"
)

// healthStories are told by TestPackets.
var healthStories = []story{
	{"A backend that answers a SYN with a reset has failed", aBackendThatAnswersWithAResetHasFailed},
	{"A SYN that comes again was not answered", aSYNThatComesAgainWasNotAnswered},
	{"An unreachable backend has failed", anUnreachableBackendHasFailed},
}

// failed returns how many connections backends did not take.
func (r *rig) failed(tb testing.TB) uint64 {
	tb.Helper()
	i, err := datapath.Inspect(r.root)
	must(tb, err)
	defer i.Close()
	status, err := i.Status()
	must(tb, err)
	return status.Counters["backend_failed"]
}

// fails says how many failures were noted while something was done.
func (c cast) fails(t *testing.T, what string, want uint64, do func()) {
	t.Helper()
	before := c.failed(t)
	do()
	if got := c.failed(t) - before; got != want {
		t.Errorf("%s: %d failures were noted, want %d", what, got, want)
	}
}

// begin makes a frontend with a backend, to which a client has sent a packet.
func (c cast) begin(t *testing.T, client, vip, backend netip.AddrPort) packet {
	t.Helper()
	c.forget(t)
	c.set(t, "web", c.frontend(lb.LoadBalancerIP, vip, backend))
	p := c.packet(client, vip, 0)
	c.becomes(t, "the connection begins", in, uplink, p, p.to(client, backend))
	return p
}

func aBackendThatAnswersWithAResetHasFailed(t *testing.T, c cast) {
	if c.protocol != lb.TCP {
		return
	}
	client, vip, backend := at(c.client, 40000), at(c.vip, 80), at(c.local, 8080)
	for _, tc := range []struct {
		flags string
		want  uint64
	}{{"RA", 1}, {"SA", 0}} {
		p := c.begin(t, client, vip, backend)
		a := p.to(client, backend).answer(tc.flags, nil)
		c.fails(t, "first answer "+tc.flags, tc.want, func() { c.becomes(t, "the answer", out, uplink, a, a.to(vip, client)) })
		r := p.to(client, backend).answer("RA", nil)
		c.fails(t, "a later reset", 0, func() { c.becomes(t, "a later reset", out, uplink, r, r.to(vip, client)) })
	}
}

func aSYNThatComesAgainWasNotAnswered(t *testing.T, c cast) {
	if c.protocol != lb.TCP {
		return
	}
	client, vip, backend := at(c.client, 40000), at(c.vip, 80), at(c.local, 8080)
	p := c.begin(t, client, vip, backend)
	again := func() { c.becomes(t, "again", in, uplink, p, p.to(client, backend)) }
	c.fails(t, "a SYN again at once", 0, again)
	c.age(t, 1)
	c.fails(t, "a SYN again after a second", 1, again)
	a := p.to(client, backend).answer("SA", nil)
	c.becomes(t, "the answer", out, uplink, a, a.to(vip, client))
	c.age(t, 1)
	// A client with forged addresses cannot eject a backend that answers.
	c.fails(t, "a SYN after the answer", 0, again)
}

func anUnreachableBackendHasFailed(t *testing.T, c cast) {
	client, vip, backend := at(c.client, 40000), at(c.vip, 80), at(c.local, 8080)
	for name, e := range c.errors() {
		p := c.begin(t, client, vip, backend)
		sent := p.to(client, backend)
		e.from, e.to, e.about = backend.Addr(), client.Addr(), quoted(t, sent, 500)
		want := uint64(0)
		if name == "port unreachable" {
			want = 1
		}
		c.fails(t, name, want, func() { c.run(t, out, uplink, e.frame(t)) })
	}
}
