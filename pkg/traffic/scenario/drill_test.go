package scenario

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/pkg/cgroup"
	"github.com/headgate/headgate/pkg/traffic"
	"github.com/headgate/headgate/pkg/traffic/load"
	"github.com/headgate/headgate/pkg/traffic/result"
)

// The client of a contender is this program, too.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == "worker" {
		if err := load.Serve(context.Background(), os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

const goodDrill = `
name: x
topology: node
ask: one
contenders: [direct, other]
hooks: {other: {setup: "true", change: "true", restart: "true"}}
services: [10]
endpoints: 3
rounds: 3
load: {kind: crr, rate: 100, duration: 2s}
churn: [0, 5]
drill: {kind: replace-endpoint, at: 500ms, grace: 1s}
aims:
  - {contender: other, metric: last-old, over-churn: 0, at-most: 1.1}
  - {contender: other, churn: 0, metric: failures, at-most: 0}
quick: {rounds: 2, churn: [5]}
`

func TestWhatIsWrongWithADrillIsSaid(t *testing.T) {
	s, err := parse([]byte(goodDrill))
	if err != nil {
		t.Fatal(err)
	}
	if s.Drill.Grace != time.Second || len(s.Churn) != 2 || len(s.Small().Churn) != 1 || !s.contender(s.cases()[0]).Drill {
		t.Errorf("read %+v with drill %+v", s, s.Drill)
	}
	restart := "{kind: restart, at: 1s, signal: KILL}"
	kill := "{kind: kill-backend, at: 1s, how: silent}"
	for _, tc := range []struct{ old, new, want string }{
		{"kind: replace-endpoint", "kind: explode", `drill.kind is "explode": there are replace-endpoint, restart, kill-backend`},
		{"kind: replace-endpoint", "kind: replace-endpoint, who: me", "field who not found"},
		{"at: 500ms", "at: 0s", "drill.at is 0s"},
		{"at: 500ms", "at: 1500ms", "drill.at is 1.5s and grace or pause 1s: all of it is to be within the 2s"},
		{"quick: {", "quick: {duration: 1s, ", "within the 1s"},
		{"grace: 1s", "grace: -1s", "cannot be negative"},
		{"grace: 1s", "signal: KILL", "drill.signal and drill.pause are of restart"},
		{"grace: 1s", "how: silent", "drill.how is of kill-backend"},
		{"kind: crr", "kind: rr", "load.kind is rr: drill replace-endpoint needs new connections"},
		{"ask: one", "ask: all", "ask is all: of drill replace-endpoint write one"},
		{"endpoints: 3", "endpoints: 1", "endpoints is 1: churn needs at least 2"},
		{"churn: [0, 5]\n", "", "what churn and over-churn say is not in churn"},
		{"churn: [0, 5]", "churn: [0, -5]", "churn is -5: changes a second go from 0"},
		{"churn: [0, 5]", "churn: [0, 5000]", "churn is 5000"},
		{"services: [10]", "services: [1, 10]", "churn needs at least 2 Services"},
		{`change: "true", `, "", "churn of contender \"other\": hooks.other.change is missing"},
		{"metric: failures", "metric: last-new", `metric "last-new" is none: there are rate`},
		{"over-churn: 0", "over: direct, over-churn: 0", "over, over-services, over-fewest-endpoints and over-churn exclude each other"},
		{"{kind: replace-endpoint, at: 500ms, grace: 1s}", restart, "drill restart and churn exclude each other"},
		{"{kind: replace-endpoint, at: 500ms, grace: 1s}", strings.Replace(restart, "KILL", "HUP", 1), `drill.signal is "HUP": it is TERM or KILL`},
		{"{kind: replace-endpoint, at: 500ms, grace: 1s}", strings.Replace(restart, "signal", "grace: 1ms, signal", 1), "drill.grace is of replace-endpoint"},
		{"{kind: replace-endpoint, at: 500ms, grace: 1s}", strings.Replace(kill, "silent", "loud", 1), `drill.how is "loud": it is silent or refuses`},
		{"drill: {kind: replace-endpoint, at: 500ms, grace: 1s}", "", "metric last-old is of a drill, and there is none"},
	} {
		_, err := parse([]byte(strings.Replace(goodDrill, tc.old, tc.new, 1)))
		if err == nil || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q for %q: error is %v, want one line with %q", tc.new, tc.old, err, tc.want)
		}
	}
}

// mustRunScenario runs a scenario.
func mustRunScenario(t *testing.T, text string) []result.Run {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root for network namespaces")
	}
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
	runs, err := s.Run(t.Context(), Settings{RunName: traffic.RunName("hg-drill-"), CgroupTop: top, RunDir: t.TempDir(), Worker: func() *exec.Cmd { return exec.Command(program, "worker") }, Progress: func(string) {}})
	if err != nil {
		t.Fatal(err)
	}
	return runs
}

// slack is what a busy machine adds to times.
const slack = 150 * time.Millisecond

// Without load balancer the new server is there at a known time. What is measured
// is that time, but for the distance of connections to one of three servers.
func TestADrillWithoutLoadBalancerComesOutAsKnown(t *testing.T) {
	runs := mustRunScenario(t, `
name: x
topology: node
ask: one
contenders: [direct]
services: [1]
endpoints: 3
rounds: 2
load: {kind: crr, rate: 500, duration: 1s}
drill: {kind: replace-endpoint, at: 500ms, slow: 5s}
`)
	const apart = 3 * time.Second / 500
	for _, run := range runs { // the second shows that the first was undone
		d := run.Drill
		if d == nil || d.LastOld == nil || d.FirstNew == nil {
			t.Fatalf("drill is %s, with backends %v", d, run.Backends)
		}
		if *d.LastOld > slack || *d.FirstNew > apart+slack {
			t.Errorf("%s, want both within %s of it", d, apart+slack)
		}
		if d.Failed+d.Slow+d.Broken > 0 {
			t.Errorf("%s, want nothing failed, slow or broken", d)
		}
	}
}

// A third of all connections goes to a server that is silent from a known time on.
func TestConnectionsToASilentServerFail(t *testing.T) {
	runs := mustRunScenario(t, `
name: x
topology: node
ask: one
contenders: [direct]
services: [1]
endpoints: 3
rounds: 1
load: {kind: crr, rate: 300, connections: 128, timeout: 400ms, duration: 1s}
drill: {kind: kill-backend, at: 400ms, how: silent}
`)
	run := runs[0]
	if want := 60; run.Drill.Failed < uint64(want)/2 || run.Drill.Failed > uint64(want)*3/2 || run.Errors[result.Timeout] != run.Failed {
		t.Errorf("%s with errors %v, want about %d of timeout", run.Drill, run.Errors, want)
	}
	if last := run.Drill.LastFailed; last < 500*time.Millisecond || last > 600*time.Millisecond {
		t.Errorf("the last failure was due %s after the server had died, want the end of the run 600 ms after it", last)
	}
}

// A load balancer that commands bring up, change and start again: here one of a
// few rules, made from the list that they find.
const hooked = `
name: x
topology: node
ask: one
contenders: [mine]
hooks:
  mine:
    setup: &rules |
      set -e
      while read -r protocol vip endpoints; do
        n=0 map=
        for e in $endpoints; do map="$map$n : ${e%:*} . ${e#*:}, " n=$((n + 1)); done
        rules="$rules ip daddr ${vip%:*} tcp dport ${vip#*:} dnat ip addr . port to numgen random mod $n map { $map }
      "
      done <"$SERVICES"
      nsenter --net="/run/netns/$NODE" nft -f - <<EOF
      table ip mine
      delete table ip mine
      table ip mine {
        chain in { type nat hook prerouting priority dstnat; $rules }
      }
      EOF
    change: *rules
    restart: *rules
services: [4]
endpoints: 3
rounds: 1
load: {kind: crr, rate: 500, connections: 64, fin: true, duration: 1200ms}
`

func TestADrillOfALoadBalancerOfCommands(t *testing.T) {
	run := mustRunScenario(t, hooked+"drill: {kind: replace-endpoint, at: 300ms, grace: 500ms, slow: 5s}\n")[0]
	d := run.Drill
	if d.LastOld == nil || d.FirstNew == nil {
		t.Fatalf("drill is %s, with backends %v", d, run.Backends)
	}
	// Whether the command has begun or is over, the rules are these or those.
	if *d.LastOld > d.Took+slack || *d.FirstNew > d.Took+slack || d.Failed+d.Broken > 0 {
		t.Errorf("%s, want it to take effect within the %s that the command took, and nothing to fail", d, d.Took)
	}
}

func TestARestartOfALoadBalancerOfCommands(t *testing.T) {
	run := mustRunScenario(t, hooked+"drill: {kind: restart, signal: TERM, at: 300ms, pause: 200ms, slow: 5s}\n")[0]
	if d := run.Drill; d.Took < 200*time.Millisecond || d.LastOld != nil || d.Failed+d.Broken > 0 {
		t.Errorf("%s in %s, want nothing failed after a pause of 200 ms", d, d.Took)
	}
}

func TestAChurnOfALoadBalancerOfCommands(t *testing.T) {
	runs := mustRunScenario(t, hooked+"churn: [0, 10]\n")
	if len(runs) != 2 || runs[0].Churn != nil || runs[0].Labels["churn"] != "0" || runs[1].Labels["churn"] != "10" {
		t.Fatalf("%d runs, of which the first has churn %s and labels %v", len(runs), runs[0].Churn, runs[0].Labels)
	}
	if churn := runs[1].Churn; churn.PerSecond() < 8 || churn.PerSecond() > 10.1 || runs[1].Failed > 0 {
		t.Errorf("%s and %d failed, want about 10 a second and none", churn, runs[1].Failed)
	}
}
