package packets

import (
	"testing"

	"github.com/headgate/headgate/pkg/datapath"
	"github.com/headgate/headgate/pkg/lb"
)

// TestASilentConnectionKeepsItsPort has a connection be silent for three hours, and another client
// come by the same port.
func TestASilentConnectionKeepsItsPort(t *testing.T) {
	r := newRig(t)
	for _, b := range []book{v4, v6} {
		t.Run(b.family(), func(t *testing.T) { r.tell(t, story{tell: aSilentConnectionKeepsItsPort}, cast{b, r, lb.TCP}) })
	}
}

func aSilentConnectionKeepsItsPort(t *testing.T, c cast) {
	vip, backend := at(c.vip, 80), at(c.remote, 8080)
	c.set(t, "web", c.frontend(lb.LoadBalancerIP, vip, backend))
	first, second := c.crowdFrom(c.client, 20000), c.crowdFrom(c.other, 20000)
	first.again(t)
	c.age(t, 3*3600)
	if second.again(t); len(first.open) != 1 || len(second.open) != 1 {
		t.Fatal("there is no port")
	}
	one, other := first.open[0], second.open[0]
	if one.left.src == other.left.src {
		t.Errorf("%s and %s both leave as %s", one.sent.src, other.sent.src, one.left.src)
	}
	a := one.left.answer("A", []byte("late"))
	c.becomes(t, "the backend goes on", in, tunnel, a, a.to(backend, one.sent.src))
	if !first.keeps(t) || !second.keeps(t) {
		t.Error("a connection does not go on")
	}
}

// TestTheLongestSilentConnectionGivesUpItsPort has connections that hold all ports be silent for
// hours, and the one that was silent for longest be of a network with few ports.
func TestTheLongestSilentConnectionGivesUpItsPort(t *testing.T) {
	r := newRigOf(t, func(c *datapath.Config) { c.SNATPorts = datapath.Ports{First: 16384, Last: 16399} })
	for _, b := range []book{v4, v6} {
		t.Run(b.family(), func(t *testing.T) { r.tell(t, story{tell: theLongestSilentGivesUp}, cast{b, r, lb.TCP}) })
	}
}

func theLongestSilentGivesUp(t *testing.T, c cast) {
	c.set(t, "web", c.frontend(lb.LoadBalancerIP, at(c.vip, 80), at(c.remote, 8080)))
	silent, greedy, late := c.crowdFrom(c.other, 20000), c.crowdFrom(c.client, 30000), c.crowdFrom(neighbour(c.other), 40000)
	silent.again(t)
	for greedy.again(t) {
		if len(greedy.open) > 15 {
			t.Fatal("there is always a port")
		}
	}
	c.age(t, 3600)
	if !greedy.keeps(t) {
		t.Error("a connection does not go on after an hour")
	}
	c.age(t, 2*3600)
	if !late.again(t) || late.open[0].left.src != silent.open[0].left.src {
		t.Error("the connection that was silent for three hours does not give up its port")
	}
	if !greedy.keeps(t) || !late.keeps(t) {
		t.Error("another connection does not go on")
	}
}
