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
	f.Internal, f.External = far, near
	l.set(t, web, f)
	f.Internal, f.External = near, lb.View{Backends: numbered(4, 5)}
	l.set(t, web, f)
	c := l.model.Content()
	for _, v := range []struct {
		clients string
		want    lb.View
		table   Table
	}{
		{"internal", f.Internal, c.Frontends[f.AddrPort].Internal.Table},
		{"external", f.External, c.Frontends[f.AddrPort].External.Table},
	} {
		for _, id := range c.Tables[v.table] {
			if b := c.Backends[id]; !slices.Contains(v.want.Backends, b) {
				t.Errorf("%s clients get %s, want one of %v", v.clients, b, v.want.Backends)
			}
		}
	}
}
