package packets

import (
	"net/netip"
	"testing"

	"github.com/headgate/headgate/pkg/datapath"
	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/tests/testenv"
)

// healthStories are told by TestPackets.
var healthStories = []story{
	{"A backend that answers a SYN with a reset has failed", aBackendThatAnswersWithAResetHasFailed},
	{"A SYN that comes again was not answered", aSYNThatComesAgainWasNotAnswered},
	{"A SYN that is not answered counts once", aSYNThatIsNotAnsweredCountsOnce},
	{"A connection that its backend resets counts once", aConnectionThatItsBackendResetsCountsOnce},
	{"An unreachable backend has failed", anUnreachableBackendHasFailed},
}

// failed returns how many connections backends did not take.
func (r *rig) failed(tb testing.TB) uint64 {
	tb.Helper()
	return testenv.Status(tb, r.root).Counters["backend_failed"]
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

// traffic returns that of all Service ports, and that of all backends.
func (r *rig) traffic(tb testing.TB) (services, backends datapath.Traffic) {
	tb.Helper()
	i, err := datapath.Inspect(r.root)
	must(tb, err)
	defer i.Close()
	add := func(sum *datapath.Traffic, t datapath.Traffic) {
		sum.PacketsTo, sum.BytesTo = sum.PacketsTo+t.PacketsTo, sum.BytesTo+t.BytesTo
		sum.PacketsFrom, sum.BytesFrom = sum.PacketsFrom+t.PacketsFrom, sum.BytesFrom+t.BytesFrom
		all, f := &sum.Failed, t.Failed
		all.Refused, all.TimedOut = all.Refused+f.Refused, all.TimedOut+f.TimedOut
		all.Unreachable, all.Reset = all.Unreachable+f.Unreachable, all.Reset+f.Reset
	}
	for id := range r.told.Services {
		s, err := i.Traffic(id)
		must(tb, err)
		add(&services, s.Traffic)
	}
	for _, b := range i.Backends() {
		add(&backends, b.Traffic)
	}
	return services, backends
}

// counts says which failures were counted of Services and of backends while something was done.
func (c cast) counts(t *testing.T, what string, want datapath.Failures, do func()) {
	t.Helper()
	services, backends := c.traffic(t)
	do()
	nowServices, nowBackends := c.traffic(t)
	for whose, got := range map[string]datapath.Failures{
		"Services": less(nowServices.Failed, services.Failed), "backends": less(nowBackends.Failed, backends.Failed),
	} {
		if got != want {
			t.Errorf("%s: failures of %s %+v, want %+v", what, whose, got, want)
		}
	}
}

// less returns what was added to failures since before.
func less(f, before datapath.Failures) datapath.Failures {
	return datapath.Failures{
		Refused: f.Refused - before.Refused, TimedOut: f.TimedOut - before.TimedOut,
		Unreachable: f.Unreachable - before.Unreachable, Reset: f.Reset - before.Reset,
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
		c.counts(t, "first answer "+tc.flags, datapath.Failures{Refused: tc.want}, func() {
			c.fails(t, "first answer "+tc.flags, tc.want, func() { c.becomes(t, "the answer", out, uplink, a, a.to(vip, client)) })
		})
		r := p.to(client, backend).answer("RA", nil)
		c.counts(t, "a later reset", datapath.Failures{}, func() {
			c.fails(t, "a later reset", 0, func() { c.becomes(t, "a later reset", out, uplink, r, r.to(vip, client)) })
		})
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

func aSYNThatIsNotAnsweredCountsOnce(t *testing.T, c cast) {
	if c.protocol != lb.TCP {
		return
	}
	client, vip, backend := at(c.client, 40000), at(c.vip, 80), at(c.local, 8080)
	p := c.begin(t, client, vip, backend)
	c.counts(t, "SYNs again after a second each", datapath.Failures{TimedOut: 1}, func() {
		c.fails(t, "SYNs again after a second each", 3, func() {
			for range 3 {
				c.age(t, 1)
				c.becomes(t, "again", in, uplink, p, p.to(client, backend))
			}
		})
	})
}

func aConnectionThatItsBackendResetsCountsOnce(t *testing.T, c cast) {
	if c.protocol != lb.TCP {
		return
	}
	client, vip, backend := at(c.client, 40000), at(c.vip, 80), at(c.local, 8080)
	for _, tc := range []struct {
		what, before string // who resets, after these flags of the client
		flags        string
		want         uint64
	}{
		{"the backend", "A", "RA", 1},
		{"the backend, which does not know the connection any more", "A", "R", 1},
		{"the backend, after the client has closed its side", "FA", "RA", 0},
		{"nobody: the backend closes its side", "A", "FA", 0},
	} {
		p := c.begin(t, client, vip, backend)
		sent := p.to(client, backend)
		answer := sent.answer("SA", nil)
		c.becomes(t, "the answer", out, uplink, answer, answer.to(vip, client))
		c.becomes(t, "the handshake ends", in, uplink, p.with("A"), sent.with("A"))
		c.becomes(t, "what the client says", in, uplink, p.with(tc.before), sent.with(tc.before))
		c.counts(t, tc.what, datapath.Failures{Reset: tc.want}, func() {
			for range 2 {
				a := sent.answer(tc.flags, nil)
				c.becomes(t, tc.what, out, uplink, a, a.to(vip, client))
			}
		})
	}
	p := c.begin(t, client, vip, backend)
	sent := p.to(client, backend)
	answer := sent.answer("SA", nil)
	c.becomes(t, "the answer", out, uplink, answer, answer.to(vip, client))
	c.becomes(t, "the handshake ends", in, uplink, p.with("A"), sent.with("A"))
	c.counts(t, "the client resets", datapath.Failures{}, func() {
		c.becomes(t, "the client resets", in, uplink, p.with("RA"), sent.with("RA"))
	})
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
		counted := datapath.Failures{}
		if c.protocol == lb.TCP {
			counted.Unreachable = want
		}
		c.counts(t, name, counted, func() {
			c.fails(t, name, want, func() { c.run(t, out, uplink, e.frame(t)) })
		})
	}
}
