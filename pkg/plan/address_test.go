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
		if at.Addr.IsUnspecified() {
			continue
		}
		kind := FrontendAddress
		if f.Kind == lb.ClusterIP {
			kind = ServiceAddress
		}
		if f.Carried {
			kind |= CarriedAddress
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

func TestAnAddressIsCarriedWhileOneOfItsFrontendsIs(t *testing.T) {
	l := &lab{Planner: New(Sizes{})}
	a := netip.MustParseAddr("192.0.2.9")
	frontend := func(at string, carried bool) lb.Frontend {
		f := clusterIP(t, at)
		f.Kind, f.Carried = lb.ExternalIP, carried
		return f
	}
	wants := func(when, want string) {
		t.Helper()
		if got := l.model.Addresses[a].String(); got != want {
			t.Errorf("%s: the address is %q, want %q", when, got, want)
		}
	}
	l.set(t, web, frontend("192.0.2.9:80/TCP", false))
	wants("none is carried", "frontend")
	l.set(t, api, frontend("192.0.2.9:81/TCP", true), frontend("192.0.2.9:82/TCP", true))
	wants("two are carried", "frontend,carried")
	l.set(t, api, frontend("192.0.2.9:81/TCP", false), frontend("192.0.2.9:82/TCP", true))
	wants("one is carried", "frontend,carried")
	content := l.model.Content()
	content.Addresses[a] &^= CarriedAddress // as an earlier version has left it
	l.Planner = mustAdopt(t, content)
	l.model.Addresses[a] = content.Addresses[a]
	ops := l.set(t, api, frontend("192.0.2.9:81/TCP", false), frontend("192.0.2.9:82/TCP", true))
	wantOps(t, ops, "put address 192.0.2.9 frontend,carried\n")
	l.Planner = mustAdopt(t, l.model.Content())
	if ops := l.set(t, api, frontend("192.0.2.9:81/TCP", false), frontend("192.0.2.9:82/TCP", true)); len(ops) > 0 {
		t.Errorf("after a restart, what is as it was is written:\n%s", text(ops))
	}
	l.set(t, api, frontend("192.0.2.9:81/TCP", false))
	wants("the last one is gone", "frontend")
	l.set(t, web)
	l.set(t, api)
	wants("nobody has it", "")
}
