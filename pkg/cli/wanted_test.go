package cli

import (
	"net/netip"
	"testing"

	"github.com/headgate/headgate/pkg/datapath"
	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/plan"
)

func TestAWordMeansAServiceOrAnAddress(t *testing.T) {
	one := frontend{
		at:      lb.AddrPort{Addr: netip.MustParseAddr("10.96.0.10"), Port: 80, Protocol: lb.TCP},
		service: plan.Service{ServiceName: lb.ServiceName{Namespace: "shop", Name: "web"}, Port: "http", Protocol: lb.TCP},
	}
	for _, tc := range []struct {
		word, namespace string
		want            bool
	}{
		{"", "", true}, {"", "shop", true}, {"", "other", false},
		{"web", "", true}, {"web", "shop", true}, {"web", "other", false},
		{"web:http", "", true}, {"web:http/TCP", "", true}, {"web:http/UDP", "", false}, {"web:https", "", false},
		{"shop/web", "", true}, {"shop/web:http/TCP", "shop", true}, {"shop/web", "other", false}, {"other/web", "", false},
		{"we", "", false}, {"webs", "", false}, {"shop", "", false}, {"shop/", "", false},
		{"10.96.0.10", "", true}, {"10.96.0.10:80", "", true}, {"10.96.0.10:80/TCP", "", true}, {"10.96.0.10:80/UDP", "", false},
		{"10.96.0.10", "other", false}, {"10.96.0.1", "", false},
	} {
		if got := (wanted{word: tc.word, namespace: tc.namespace}).wants(one); got != tc.want {
			t.Errorf("%q in namespace %q: %v, want %v", tc.word, tc.namespace, got, tc.want)
		}
	}
}

func TestANameOfSeveralNamespacesIsNoNameToShow(t *testing.T) {
	in := func(namespace string) item {
		return service{port: plan.Service{ServiceName: lb.ServiceName{Namespace: namespace, Name: "web"}, Protocol: lb.TCP}}
	}
	g := services.untyped()
	const want = `"web" is any of a/web, b/web: write one of them, or its namespace with -n`
	if err := g.oneMeant([]item{in("b"), in("a"), in("a")}, wanted{word: "web"}); err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
	if err := g.oneMeant([]item{in("a"), in("a")}, wanted{word: "web"}); err != nil {
		t.Error(err)
	}
}

func TestAPodOfSeveralNamespacesIsNoNameToShow(t *testing.T) {
	in := func(namespace string) item {
		return backend{described: describe(&lb.Description{Pod: lb.PodName{Namespace: namespace, Name: "web-1"}}, datapath.Load{})}
	}
	g := backends.untyped()
	const want = `"web-1" is any of a/web-1, b/web-1: write one of them, or its namespace with -n`
	if err := g.oneMeant([]item{in("b"), in("a")}, wanted{word: "web-1"}); err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
	for _, one := range []struct {
		word  string
		items []item
	}{{"web-1", []item{in("a"), in("a")}}, {"a/web-1", []item{in("a")}}} {
		if err := g.oneMeant(one.items, wanted{word: one.word}); err != nil {
			t.Error(err)
		}
	}
}
