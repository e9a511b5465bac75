package cli

import (
	"net/netip"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/plan"
)

// refusalsOnPage finds the reasons in the table of drop reasons, which is made from those of the datapath.
var refusalsOnPage = regexp.MustCompile("(?s)<!-- drop reasons: .*? -->\n(.*?)<!-- end of drop reasons -->")

var reasonOnPage = regexp.MustCompile("(?m)^\\| `([a-z_]+)`")

// whatToChange is how a remedy names it: a field of an object, a flag, a command, or where the fault is.
var whatToChange = regexp.MustCompile(`\b(spec\.\w+|metadata\.\w+:|MTU\b|ip address add|headgate [a-z]+)|--[a-z]+`)

// Whatever a client is refused for, explain says what to change.
func TestThereIsARemedyForEveryReasonOfARefusal(t *testing.T) {
	page, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	table := refusalsOnPage.FindStringSubmatch(string(page))
	if table == nil {
		t.Fatal("docs/metrics.md has no table of drop reasons")
	}
	known := map[string]bool{}
	for _, m := range reasonOnPage.FindAllStringSubmatch(table[1], -1) {
		known[m[1]] = true
		if remedies[m[1]] == nil {
			t.Errorf("there is no remedy for %s", m[1])
		}
	}
	for reason := range remedies {
		if !known[reason] {
			t.Errorf("there is a remedy for %s, for which nobody is refused", reason)
		}
		for _, who := range []asker{{}, {at: netip.MustParseAddrPort("192.0.2.9:40000")}} {
			x := explanation{asker: who, at: lb.AddrPort{Addr: netip.MustParseAddr("10.96.0.10"), Port: 80, Protocol: lb.TCP}, Service: "default/web:http/TCP", Refused: reason, Ranges: []string{"198.51.100.0/24"}}
			if text := x.remedy(); !whatToChange.MatchString(text) {
				t.Errorf("%s: the remedy names nothing to change: %s", reason, text)
			}
		}
	}
	if got := (&explanation{Refused: "of_tomorrow"}).remedy(); got != "docs/metrics.md says what of_tomorrow means" {
		t.Errorf("a reason of another version: %q", got)
	}
}

// Wherever hints are ignored, explain says what to change for them to count.
func TestThereIsARemedyWhereverHintsAreIgnored(t *testing.T) {
	ignored := 0
	for why := lb.WhyAll; why.String() != ""; why++ {
		x := explanation{why: why, Service: "default/web/TCP", at: lb.AddrPort{Protocol: lb.TCP}}
		x.advise()
		if is := regexp.MustCompile(`^hints ignored: `).MatchString(why.String()); is != (x.Remedy != "") || is && !whatToChange.MatchString(x.Remedy) {
			t.Errorf("%s: the remedy is %q", why, x.Remedy)
		} else if is {
			ignored++
		}
	}
	if ignored == 0 {
		t.Error("hints are never ignored: nothing is tested")
	}
}

// A share is told where chance does not make it of the usual one: sooner where a backend is not well.
func TestAShareOfNowIsToldWhereItIsAnother(t *testing.T) {
	for _, c := range []struct {
		usual, now *float64
		standsIn   bool
		health     string
		want       string
	}{
		{new(50.0), new(55.0), false, healthy, "50.0%   b  ok"},
		{new(50.0), new(100.0), false, healthy, "50.0%   b  ok, now 100%"},
		{new(10.0), new(0.0), false, "1 failed", "10.0%   b  1 failed, now 0%"},
		{new(50.0), nil, false, "1 failed", "50.0%   b  1 failed"},
		{nil, new(0.0), true, healthy, "instead b  ok"},
		{nil, new(1.0), true, healthy, "instead b  ok, now 1%"},
		{nil, nil, false, healthy, "by load b  ok"},
		{new(33.3), new(37.0), false, "1 failed", "33.3%   b  1 failed"},
		{new(33.3), new(44.0), false, "1 failed", "33.3%   b  1 failed, now 44%"},
		{new(33.3), new(44.0), false, healthy, "33.3%   b  ok"},
		{new(100.0), new(100.0), false, healthy, "100.0%  b  ok"},
	} {
		x := explanation{failing: c.health != healthy}
		if got := x.line(explainedShare{Backend: "b", Percent: c.usual, Now: c.now, StandsIn: c.standsIn, Health: c.health}); got != c.want {
			t.Errorf("%+v: %q, want %q", c, got, c.want)
		}
	}
}

// Where a Service has no endpoint, the remedy is about what its EndpointSlices lack.
func TestTheRemedyKnowsWhatEndpointSlicesLack(t *testing.T) {
	at := func(slice, port string, protocol lb.Protocol) *lb.Description {
		return &lb.Description{Backend: lb.AddrPort{Protocol: protocol}, Slice: slice, Port: port}
	}
	web := plan.Service{ServiceName: lb.ServiceName{Namespace: "default", Name: "web"}, Port: "http", Protocol: lb.TCP}
	for _, c := range []struct {
		what   string
		other  *lb.Description
		listed int
		asked  bool
		want   string
	}{
		{"no agent answers", nil, 0, false, `^Service default/web: no endpoint is ready: look at spec.selector`},
		{"no slice", nil, 0, true, `^Service default/web: no EndpointSlice with the label kubernetes.io/service-name: web has an endpoint of this family: `},
		{"unready", at("web-1", "other", lb.TCP), 1, true, `: no endpoint is ready: look at spec.selector`},
		{"an earlier agent", at("", "", lb.TCP), 0, true, `: no endpoint is ready: look at spec.selector`},
		{"another name", at("web-1", "htpp", lb.TCP), 0, true, `^Service default/web: EndpointSlice web-1 has port htpp/TCP, and none is named http/TCP: write one name in spec.ports`},
		{"no name", at("web-1", "", lb.TCP), 0, true, `EndpointSlice web-1 has port ""/TCP, and none is named http/TCP: `},
		{"another protocol", at("web-1", "http", lb.UDP), 0, true, `EndpointSlice web-1 has port http/UDP, and none is named http/TCP: `},
	} {
		x := explanation{Service: web.String(), port: web, other: c.other, asked: c.asked, Refused: "no_endpoint", Backends: make([]explainedShare, c.listed)}
		x.at.Protocol = lb.TCP
		if got := x.remedy(); !regexp.MustCompile(c.want).MatchString(got) {
			t.Errorf("%s: the remedy is %q, want %q", c.what, got, c.want)
		}
	}
}

// Those that clients spill to have their part of the shares.
func TestSharesAreOfSlotsAndOfWhatSpills(t *testing.T) {
	h := shares{part: map[uint32]float64{}}
	h.add([]uint32{7, 8, 7, 7}, 0.75)
	h.add([]uint32{8, 9}, 0.25)
	h.add([]uint32{5}, 0)
	h.add(nil, 0)
	for id, want := range map[uint32]float64{7: 0.5625, 8: 0.3125, 9: 0.125, 5: 0} {
		if h.part[id] != want {
			t.Errorf("backend %d has %v of the clients, want %v", id, h.part[id], want)
		}
	}
	if len(h.order) != 4 || h.order[0] != 7 || h.order[3] != 5 {
		t.Errorf("the order is %v", h.order)
	}
}

func TestADrainedBackendIsNamedWhereItWouldServe(t *testing.T) {
	shares := []explainedShare{{Backend: "10.244.1.1:80/TCP", Node: "node-a", Unused: byDrain}, {Backend: "10.244.2.1:80/TCP", Node: "node-b", Unused: byDrain}}
	for _, c := range []struct {
		refused string
		drained []explainedShare
		want    string
	}{
		{"no_endpoint", shares, "Service default/web: no endpoint is left for these clients; 10.244.1.1:80/TCP, 10.244.2.1:80/TCP: drained, see headgate undrain"},
		{"no_local_endpoint", shares, "Service default/web: no endpoint is left for these clients; 10.244.1.1:80/TCP: drained, see headgate undrain"},
		{"no_local_endpoint", shares[1:], "Service default/web: spec.internalTrafficPolicy: Local, and no ready pod is on this node: write Cluster, or run a pod here"},
	} {
		x := explanation{Service: "default/web:http/TCP", Refused: c.refused, Backends: c.drained, node: "node-a"}
		if got := x.remedy(); got != c.want {
			t.Errorf("%s of %d: %q, want %q", c.refused, len(c.drained), got, c.want)
		}
	}
}

func TestDSRIsAdvisedWhereItIsOff(t *testing.T) {
	x := explanation{Service: "default/web:http/TCP", Kind: lb.LoadBalancerIP.String()}
	own := netip.MustParseAddr("192.0.2.1")
	if got := x.keepSource(own); !strings.HasSuffix(got, ", or use DSR (docs/dsr.md)") {
		t.Error(got)
	}
	x.carried = true
	if got := x.keepSource(own); !strings.HasSuffix(got, "; DSR does not forward to this backend: see headgate peer list") {
		t.Error(got)
	}
}
