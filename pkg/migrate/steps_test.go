package migrate

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/pkg/preflight"
)

// Rules without chains of any family, and those of IPVS, which has none and needs none.
var bare, ipvs = preflight.Rules{Where: "nftables", Mode: "nftables"}, preflight.Rules{Mode: "ipvs"}

func TestAKubeProxyServesWithRulesOfEveryFamily(t *testing.T) {
	both := map[string]bool{"IPv4": true, "IPv6": true}
	runs := preflight.KubeProxy{Runs: true, Process: "kube-proxy (pid 7)", Mode: "nftables"}
	stale := bare
	stale.Stale = "kube-proxy is in mode iptables"
	for _, tc := range []struct {
		name string
		s    Status
		want string // why it does not, "" where it does
	}{
		{"none", Status{}, "none runs here"},
		{"it has begun", Status{KubeProxy: runs}, "has written no rules yet"},
		{"others' rules", Status{KubeProxy: runs, Rules: []preflight.Rules{stale}}, "has written no rules yet"},
		{"it does not answer", Status{KubeProxy: runs, Rules: []preflight.Rules{bare}, Healthz: "nobody answers"}, "nobody answers"},
		{"it names its families", Status{KubeProxy: runs, Rules: []preflight.Rules{bare}, families: both, familiesNamed: true}, ""},
		{"before 1.32, without chains", Status{KubeProxy: runs, Rules: []preflight.Rules{bare}, families: both}, "has written no rules of IPv4 yet"},
		{"before 1.32, IPVS", Status{KubeProxy: runs, Rules: []preflight.Rules{ipvs}, families: both}, ""},
		{"before 1.32, no Services", Status{KubeProxy: runs, Rules: []preflight.Rules{bare}}, ""},
	} {
		if done, found := kubeProxyServes(tc.s, Options{}); done != (tc.want == "") || !strings.Contains(found, tc.want) {
			t.Errorf("%s: %t, %q; want %q", tc.name, done, found, tc.want)
		}
	}
}

func TestConnectionsAreKeptForAsLongAsTheyMay(t *testing.T) {
	now := time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)
	kept := func(connections int, since time.Time) Status {
		return Status{KeepsNAT: true, NATSince: since, Connections: map[string]int{"TCP": connections}}
	}
	day := Options{KeepConnections: 24 * time.Hour}
	for _, tc := range []struct {
		name  string
		s     Status
		o     Options
		done  bool
		late  bool
		found string
	}{
		{"some are left", kept(2, now.Add(-time.Hour)), day, false, false, "2 TCP connections of kube-proxy's time, which the kernel goes on with, until 2026-11-25T11:00:00Z at most"},
		{"for too long", kept(2, now.Add(-25*time.Hour)), day, false, true, "until 2026-11-24T11:00:00Z at most"},
		{"without a limit", kept(1, now.Add(-999*time.Hour)), Options{}, false, false, "1 TCP connection of kube-proxy's time, which the kernel goes on with"},
		{"of a table that does not say", kept(1, time.Time{}), day, false, false, "1 TCP connection of kube-proxy's time, which the kernel goes on with"},
		{"without a table", Status{Connections: map[string]int{"TCP": 3}}, day, true, false, "table inet headgate-keep-nat does not keep"},
		{"none, without a table", Status{}, day, true, false, "0 TCP connections"},
	} {
		done, found := connectionsEnded(tc.s, tc.o)
		if late := tc.s.keptTooLong(tc.o, now); done != tc.done || late != tc.late || !strings.Contains(found, tc.found) {
			t.Errorf("%s: done is %t, too long %t, found %q; want %t, %t, %q", tc.name, done, late, found, tc.done, tc.late, tc.found)
		}
	}
}

// A health-check NodePort is handed over only to the agent: kube-proxy's end alone says nothing.
func TestPortsAreTakenOnceTheAgentHasThemAll(t *testing.T) {
	ours := preflight.Port{Address: "0.0.0.0:10256", Holder: "headgate (pid 7)"}
	for _, tc := range []struct{ holder, want string }{
		{"headgate (pid 7)", ""}, {"", ":30090 nobody"}, {"other (pid 8)", ":30090 other (pid 8)"}, {"kube-proxy (pid 9)", ":30090 kube-proxy (pid 9)"},
	} {
		at := slices.IndexFunc(forth, func(s step) bool { return s.name == "ports-taken" })
		done, found := forth[at].done(Status{Ports: []preflight.Port{ours, {Address: ":30090", Holder: tc.holder}}}, Options{})
		if done != (tc.want == "") || tc.want != "" && found != tc.want {
			t.Errorf("with %q: %t, %q; want %q", tc.holder, done, found, tc.want)
		}
	}
}

// Connections end with the rules in mode ipvs alone: whoever removes these is told before.
func TestWhatEndsWithTheRulesIsSaidBefore(t *testing.T) {
	at := slices.IndexFunc(forth, func(s step) bool { return s.name == "rules-removed" })
	for _, tc := range []struct {
		rules preflight.Rules
		want  bool
	}{{ipvs, true}, {bare, false}} {
		done, found := forth[at].done(Status{Rules: []preflight.Rules{tc.rules}, Connections: map[string]int{"TCP": 3}}, Options{})
		if said := strings.Contains(found, "3 TCP connections of kube-proxy's time end with it"); done || said != tc.want {
			t.Errorf("mode %s: done is %t, found %q", tc.rules.Mode, done, found)
		}
	}
}
