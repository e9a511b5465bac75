package scenario

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate/pkg/cgroup"
	"github.com/headgate/headgate/pkg/traffic"
	"github.com/headgate/headgate/pkg/traffic/report"
	"github.com/headgate/headgate/pkg/traffic/result"
	"github.com/headgate/headgate/tests/controlplane"
)

const goodCases = `
name: x
topology: pair
contenders: [direct, nftables, kube-proxy-nftables]
services: [1, 1000]
endpoints: [3, 100]
family: [ipv4, ipv6]
most-services: {kube-proxy-nftables: 100}
rounds: 3
load: {kind: crr, rate: 100, duration: 1s}
aims:
  - {contender: nftables, metric: p50, over-fewest-endpoints: true, at-most: 1.1}
  - {contender: kube-proxy-nftables, family: ipv6, metric: cpu, over: nftables, at-most: 2}
quick: {services: 1, endpoints: 3, duration: 200ms}
`

func TestEachCombinationIsACase(t *testing.T) {
	s, err := parse([]byte(goodCases))
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, c := range s.cases() {
		all = append(all, c.String())
	}
	want := []string{
		"direct with 1 Services of 3 endpoints", "nftables with 1 Services of 3 endpoints", "kube-proxy-nftables with 1 Services of 3 endpoints",
		"direct with 1000 Services of 3 endpoints", "nftables with 1000 Services of 3 endpoints",
	}
	if diff := cmp.Diff(want, all[:5]); diff != "" || len(all) != 4*5 || all[19] != "nftables with 1000 Services of 100 endpoints, IPv6" {
		t.Errorf("cases are %q, of which the first differ (-want +got):\n%s", all, diff)
	}
	labels := map[string]string{"contender": "nftables", "services": "1000", "endpoints": "100", "family": "ipv6", "topology": "pair", "churn": "5"}
	if diff := cmp.Diff(labels, s.labels(s.cases()[19], "5")); diff != "" {
		t.Errorf("labels (-want +got):\n%s", diff)
	}
	if spec := s.contender(s.cases()[19]); !spec.IPv6 || spec.Endpoints != 100 {
		t.Errorf("the last one is brought up as %+v", spec)
	}
	if small := s.Small(); len(small.cases()) != 6 || small.Endpoints[0] != 3 {
		t.Errorf("the small version has %v", small.cases())
	}
	without := s.Without("kube-proxy-nftables")
	if slices.Contains(without.Contenders, "kube-proxy-nftables") || len(without.Aims) != 1 || len(s.Aims) != 2 {
		t.Errorf("without kube-proxy it is %+v", without)
	}
	one, err := parse([]byte(strings.Replace(strings.Replace(goodCases, "[3, 100]", "3", 1), "[ipv4, ipv6]", "ipv6", 1)))
	if err != nil || len(one.cases()) != 5 || one.labels(one.cases()[0], "")["family"] != "ipv6" || one.labels(one.cases()[0], "")["endpoints"] != "" {
		t.Errorf("one value for a list: %v, cases %v", err, one.cases())
	}
}

func TestWhatIsWrongWithCasesIsSaid(t *testing.T) {
	for _, tc := range []struct{ old, new, want string }{
		{"endpoints: [3, 100]", "endpoints: []", "endpoints is empty"},
		{"endpoints: [3, 100]", "endpoints: [3, many]", "cannot unmarshal"},
		{"endpoints: [3, 100]", "endpoints: [3, 1000]", "1000 Services of 1000 endpoints: there can be"},
		{"[ipv4, ipv6]", "ipv5", `family is "ipv5": it is ipv4, ipv6 or [ipv4, ipv6]`},
		{"[ipv4, ipv6]", "[ipv4, ipv4]", "ipv4 is there twice"},
		{"[direct, nftables", "[direct, nftables, direct", "direct is there twice"},
		{"most-services: {kube", "most-services: {moon", `most-services: contender "moon-proxy-nftables" is not among contenders`},
		{"over-fewest-endpoints: true", "over-fewest-endpoints: true, over: direct", "exclude each other"},
		{"metric: cpu", "metric: gpu", "there are rate, p50, p90, p99, p99.9, p99.99, failed, cpu, client-cpu, machine-cpu, programs"},
	} {
		_, err := parse([]byte(strings.Replace(goodCases, tc.old, tc.new, 1)))
		if err == nil || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q for %q: error is %v, want one line with %q", tc.new, tc.old, err, tc.want)
		}
	}
}

func TestAimsAreOfTheLargestCaseThatBothHave(t *testing.T) {
	s, err := parse([]byte(goodCases))
	if err != nil {
		t.Fatal(err)
	}
	var runs []result.Run
	add := func(c Case, ms float64) {
		for _, r := range rounds(c.Contender, c.Services, ms, ms, ms) {
			r.Labels = s.labels(c, "")
			r.Use = &result.Use{Client: time.Duration(ms * float64(time.Millisecond))}
			runs = append(runs, r)
		}
	}
	for i, c := range s.cases() {
		add(c, float64(i+1))
	}
	got := s.Results(runs)
	want := []report.Aim{ // number 15 over number 5; of ipv6, number 18 over 17
		{What: "p50 of nftables, 1000 Services of 100 endpoints, ipv4, over 3 endpoints", AtMost: "× 1.100", Measured: "× 2.000 (× 2.000 … × 2.000)"},
		{What: "cpu of kube-proxy-nftables, 1 Service of 100 endpoints, ipv6, over nftables", AtMost: "× 2.000", Measured: "× 1.059 (× 1.059 … × 1.059)", Met: true},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("aims (-want +got):\n%s", diff)
	}
}

// mustRun runs a scenario.
func mustRun(t *testing.T, text, kubeProxy string) []result.Run {
	t.Helper()
	s, err := parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	top, err := cgroup.Root()
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	runs, err := s.Run(t.Context(), Settings{
		RunName: traffic.RunName("hg-cases-"), CgroupTop: top, RunDir: t.TempDir(), Worker: func() *exec.Cmd { return exec.Command(program, "worker") }, KubeProxy: kubeProxy, Ready: 20 * time.Second, Progress: func(text string) { t.Log(text) },
	})
	if err != nil {
		t.Fatal(err)
	}
	return runs
}

// everyOneAnswers says what is wrong with runs in which nothing is to fail.
func everyOneAnswers(t *testing.T, runs []result.Run, want int) {
	t.Helper()
	if len(runs) != want {
		t.Errorf("%d runs, want %d", len(runs), want)
	}
	for _, r := range runs {
		if r.Failed > 0 || r.Completed == 0 || r.Use == nil || r.Use.Client <= 0 || r.Use.Servers <= 0 || r.Use.Machine <= 0 {
			t.Errorf("%v: %d completed, %d failed %v, use %+v", r.Labels, r.Completed, r.Failed, r.Errors, r.Use)
		}
	}
}

func TestRulesBalanceInBothFamilies(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root for network namespaces")
	}
	for _, program := range []string{"nft", "iptables-restore", "ip6tables-restore"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Fatalf("make test installs %s: %s", program, err)
		}
	}
	for _, topology := range []string{"node", "pair"} {
		everyOneAnswers(t, mustRun(t, `
name: x
topology: `+topology+`
contenders: [direct, nftables, iptables]
services: 20
endpoints: [1, 30]
family: [ipv4, ipv6]
rounds: 1
load: {kind: crr, rate: 200, timeout: 5s, duration: 1s}
`, ""), 12)
	}
}

func TestKubeProxyBalancesAndFollowsChanges(t *testing.T) {
	dir, err := controlplane.Built(t.Context(), controlplane.KubeProxy)
	if os.Geteuid() != 0 || err != nil {
		t.Skip("needs root for network namespaces, and a kube-proxy: make kube-proxy builds one")
	}
	runs := mustRun(t, `
name: x
topology: node
contenders: [kube-proxy-iptables, kube-proxy-nftables]
services: 5
endpoints: 3
family: [ipv4, ipv6]
churn: [10]
rounds: 1
load: {kind: crr, rate: 200, timeout: 5s, duration: 1500ms}
`, dir+"/kube-proxy")
	everyOneAnswers(t, runs, 4)
	for _, r := range runs {
		if r.Use.Balancer == 0 || r.Use.Memory.Resident < 1<<20 || r.Use.Memory.BringUp == 0 {
			t.Errorf("%v: of kube-proxy it says %+v", r.Labels, r.Use)
		}
	}
	replaced := mustRun(t, `
name: x
topology: pair
ask: one
contenders: [kube-proxy-nftables]
services: 5
endpoints: 3
rounds: 1
load: {kind: crr, rate: 200, connections: 200, timeout: 5s, duration: 3s}
drill: {kind: replace-endpoint, at: 200ms, grace: 2500ms}
`, dir+"/kube-proxy")
	if d := replaced[0].Drill; d == nil || d.FirstNew == nil || d.LastOld == nil {
		t.Errorf("kube-proxy has not followed: %s", d)
	}
}
