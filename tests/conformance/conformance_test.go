package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const junit = `<testsuites><testsuite>
<testcase name="[SynchronizedBeforeSuite]" status="passed" time="1"></testcase>
<testcase name="[It] [sig-network] Services should serve" status="passed" time="4.5"></testcase>
<testcase name="[It] [sig-network] Services should be out of focus" status="skipped" time="0"><skipped message="skipped"></skipped></testcase>
<testcase name="[It] [sig-network] Services should work after restarting apiserver [Disruptive]" status="skipped" time="0"><skipped message="skipped"></skipped></testcase>
<testcase name="[It] [sig-network] DNS should not fit" status="skipped" time="0"><skipped message="skipped - only on
  Windows"></skipped></testcase>
<testcase name="[It] [sig-network] Services should fail" status="failed" time="60"><failure message="" type="failed">[FAILED] timed out
waiting
In [It] at: service.go:1</failure></testcase>
</testsuite></testsuites>`

func mustRead(tb testing.TB) []result {
	tb.Helper()
	path := filepath.Join(tb.TempDir(), "junit.xml")
	if err := os.WriteFile(path, []byte(junit), 0o600); err != nil {
		tb.Fatal(err)
	}
	all, err := readJUnit(path)
	if err != nil {
		tb.Fatal(err)
	}
	return all
}

func TestTestsOutOfFocusHaveNotRun(t *testing.T) {
	want := []result{
		{Name: "[sig-network] Services should serve", Status: "passed", Seconds: 4.5},
		{Name: "[sig-network] DNS should not fit", Status: "skipped", Reason: "only on Windows"},
		{Name: "[sig-network] Services should fail", Status: "failed", Seconds: 60, Reason: "timed out waiting"},
	}
	if diff := cmp.Diff(want, ran(mustRead(t))); diff != "" {
		t.Errorf("ran (-want +got):\n%s", diff)
	}
}

func TestWhatTheLabCannotRunIsNamedWithItsReason(t *testing.T) {
	services, err := groupNamed("services")
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, r := range leftOut(mustRead(t), services) {
		got[plainName(r.Name)] = r.Reason
	}
	want := map[string]string{
		"Services should work after restarting apiserver [Disruptive]": "restarts parts of nodes by SSH",
		"Services should be out of focus":                              "",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("leftOut (-want +got):\n%s", diff)
	}
}

// Every test of sig-network belongs to one group, or the table would leave
// some out or count them twice.
func TestGroupsDivideTheTests(t *testing.T) {
	for _, name := range []string{
		"[sig-network] Services should serve a basic endpoint from pods [Conformance]",
		"[sig-network] Networking Granular Checks: Services should function for pod-Service: http",
		"[sig-network] LoadBalancers [Feature:LoadBalancer] should work from pods",
		"[sig-network] Traffic Distribution should route traffic to an endpoint in the same zone when using PreferClose",
		"[sig-network] [Feature:IPv6DualStack] Granular Checks: Services Secondary IP Family [LinuxOnly] should function for pod-Service: udp",
		"[sig-network] Topology Hints should distribute endpoints evenly",
	} {
		var in []string
		for _, g := range groups {
			if g.has(name) {
				in = append(in, g.name)
			}
		}
		if len(in) != 1 {
			t.Errorf("%s is in the groups %v, want one", name, in)
		}
	}
}

func TestGroupsOfOneShapeShareACluster(t *testing.T) {
	want := []shape{{3, false, []string{"services", "loadbalancer"}}, {6, true, []string{"dual"}}}
	if diff := cmp.Diff(want, shapesOf([]string{"services", "dual", "loadbalancer"}), cmp.AllowUnexported(shape{})); diff != "" {
		t.Errorf("shapesOf (-want +got):\n%s", diff)
	}
}

func TestTheTableSaysWhatFailedAndWhatOnlyPassedAlone(t *testing.T) {
	services, _ := groupNamed("services")
	tab := newTable()
	tab.add(mustProxy(t, "nftables"), services, record{Results: []result{{Name: "a", Status: "passed"}}})
	tab.add(mustProxy(t, "headgate"), services, record{Version: "v1", Kernel: "6.18", Date: "2026-01-01", Results: []result{
		{Name: "[sig-network] late", Status: "passed", First: "too slow"},
		{Name: "[sig-network] wrong", Status: "failed", Reason: "a | b"},
		{Name: "[sig-network] elsewhere", Status: "skipped", Reason: "only on Windows"},
	}, Left: []result{{Name: "[sig-network] far", Status: "skipped", Reason: "needs the Internet"}}})
	got := tab.markdown()
	for _, want := range []string{
		"| group | kube-proxy nftables | Headgate |",
		"| Services | 1 of 1 | 1 of 2 |",
		"| LoadBalancers | not run | not run |",
		"- Headgate: late: passed when run alone; beside others it failed with: too slow",
		`- Headgate: **failed**, also alone: wrong: a \| b`,
		"| elsewhere | only on Windows |",
		"| far | needs the Internet |",
		"Headgate v1 on Linux 6.18, 2026-01-01.",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no line %q in\n%s", want, got)
		}
	}
}

func mustProxy(tb testing.TB, name string) proxy {
	tb.Helper()
	p, err := proxyNamed(name)
	if err != nil {
		tb.Fatal(err)
	}
	return p
}

// Results of a proxy may be those of another machine, which only the page has.
func TestAPageKeepsWhatTheCacheHasNot(t *testing.T) {
	const page = "../../docs/conformance.md"
	had, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(had), readTable(string(had)).markdown()); diff != "" {
		t.Errorf("the page is written as (-has +written):\n%s", diff)
	}
	services, _ := groupNamed("services")
	network, _ := groupNamed("network")
	tab := newTable()
	for _, name := range []string{"headgate", "headgate-dsr"} {
		for _, g := range []group{services, network} {
			tab.add(mustProxy(t, name), g, record{Version: "v1", Kernel: "6.18", Date: "2026-01-01", Results: []result{
				{Name: "[sig-network] Services should be late", Status: "passed", First: "too slow"}, {Name: "[sig-network] Networking is wrong", Status: "failed"}}})
		}
	}
	again := readTable(tab.markdown())
	again.add(mustProxy(t, "headgate-dsr"), services, record{Version: "v2", Kernel: "6.18", Date: "2026-01-02", Results: []result{{Name: "a", Status: "passed"}}})
	got := again.markdown()
	for _, want := range []string{
		"| Services | 1 of 2 | 1 of 1 |\n", "| the rest of sig-network | 1 of 2 | 1 of 2 |\n", "| LoadBalancers | not run | not run |\n",
		"- Headgate: Services should be late:", "- Headgate with --forwarding dsr: **failed**, also alone: Networking is wrong:",
		"Headgate with --forwarding dsr v1 on Linux 6.18, 2026-01-01;\nHeadgate with --forwarding dsr v2 on Linux 6.18, 2026-01-02.\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	if strings.Contains(got, "dsr: Services should be late") {
		t.Errorf("what was run again is still said to have been late:\n%s", got)
	}
}
