package plan

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate/pkg/lb"
)

// kinds fails the test unless the maps know of each address what its frontends and the node make of it.
func (l *lab) kinds(tb testing.TB, node map[netip.Addr]AddressKind) {
	tb.Helper()
	want := map[string]string{}
	all := map[netip.Addr]AddressKind{}
	for a, kind := range node {
		all[a] |= kind
	}
	for at, f := range l.model.Frontends {
		if at.Addr.IsUnspecified() || f.Former {
			continue
		}
		kind := FrontendAddress
		if f.Kind == lb.ClusterIP {
			kind = ServiceAddress
		}
		all[at.Addr] |= kind
	}
	for a, kind := range all {
		if kind != 0 {
			want[a.String()] = kind.String()
		}
	}
	got := map[string]string{}
	for a, kind := range l.model.Addresses {
		got[a.String()] = kind.String()
	}
	if diff := cmp.Diff(want, got); diff != "" {
		tb.Fatalf("addresses (-want +got):\n%s", diff)
	}
}
