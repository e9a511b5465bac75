package plan

import (
	"slices"
	"testing"

	"github.com/headgate/headgate/pkg/lb"
)

// A change in place would reach the clients that have just been given the table.
func TestATableThatAnotherViewWantsAsItIsIsNotChangedInPlace(t *testing.T) {
	l := &lab{Planner: New(Sizes{})}
	f := balanced(t, lb.Maglev, numbered(0, 5))
	f.TableSize = 7
	near, far := lb.View{Backends: numbered(0, 2)}, lb.View{Backends: numbered(2, 5)}
	f.Views[lb.Internal], f.Views[lb.External] = far, near
	l.set(t, web, f)
	f.Views[lb.Internal], f.Views[lb.External] = near, lb.View{Backends: numbered(4, 5)}
	l.set(t, web, f)
	c := l.model.Content()
	for _, v := range []struct {
		clients string
		want    lb.View
		table   Table
	}{
		{"internal", f.Views[lb.Internal], c.Frontends[f.AddrPort].Views[lb.Internal].Table},
		{"external", f.Views[lb.External], c.Frontends[f.AddrPort].Views[lb.External].Table},
	} {
		for _, id := range c.Tables[v.table] {
			if b := c.Backends[id]; !slices.Contains(v.want.Backends, b) {
				t.Errorf("%s clients get %s, want one of %v", v.clients, b, v.want.Backends)
			}
		}
	}
}

// It would be there only as long as the process that put it.
func TestABackendWithoutSlotIsNotPut(t *testing.T) {
	l := &lab{Planner: New(Sizes{})}
	f := balanced(t, lb.Maglev, numbered(0, 5))
	f.TableSize, f.Members = 3, nil
	l.set(t, web, f)
	if got := len(l.model.Backends); got != 3 {
		t.Errorf("%d backends are put, want those that have the 3 slots", got)
	}
	l.apply(t, l.Sweep())
	p, err := Adopt(l.model.Content(), Sizes{})
	if err != nil {
		t.Fatal(err)
	}
	if ops, err := p.Set(web, []lb.Frontend{f}); err != nil || len(ops) > 0 {
		t.Errorf("set as it was: %v, operations:\n%s", err, text(ops))
	}
}
