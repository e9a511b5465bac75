package contender

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate/pkg/traffic"
	"github.com/headgate/headgate/pkg/traffic/load"
	"github.com/headgate/headgate/pkg/traffic/rules"
)

// changing is a contender without load balancer, topology and servers whose changes go to
// apply.
func changing(t *testing.T, services int, apply func(before, after []version) error) *Contender {
	t.Helper()
	spec := topology(t, "pair")
	p := &Contender{Spec: Spec{Name: NFTables, Services: services, Endpoints: 3}, site: &load.Site{Topology: &traffic.Topology{Spec: spec}}}
	p.services = newServices(spec, p.Spec)
	p.changes = p.newChanges()
	p.changes.period = 0
	p.changes.apply = func(_ context.Context, before, after []version) error { return apply(before, after) }
	return p
}

// A machine may be late, but not in the sum of a second.
func TestAChurnMakesAsManyChangesAsItSays(t *testing.T) {
	var mutex sync.Mutex
	applied, came := make(map[int]int), 0
	p := changing(t, 1000, func(_, after []version) error {
		mutex.Lock()
		defer mutex.Unlock()
		for _, v := range after {
			applied[v.number]++
			if v.number == 1000 && !v.deleted {
				came++
			}
		}
		return nil
	})
	const rate = 200
	stop := p.Churn(rate)
	time.Sleep(time.Second)
	churn, err := stop()
	if err != nil {
		t.Fatal(err)
	}
	if perSecond := churn.PerSecond(); perSecond < 0.9*rate || perSecond > 1.01*rate {
		t.Errorf("%s, want about %d a second", churn, rate)
	}
	if applied[asked(1000)] > 0 {
		t.Error("the Service that is asked was changed")
	}
	if applied[1000] < 2*came || came < 5 || len(applied) < 80 {
		t.Errorf("%d Services were changed, the one that comes and goes %d times, and came %d times", len(applied), applied[1000], came)
	}
	for number, v := range p.changes.applied {
		if v.deleted != (number == 1000) || len(v.current().Endpoints) != 3 {
			t.Errorf("Service %d is left behind as %+v", number, v)
		}
	}
}

func TestChangesWithinAPeriodAreOne(t *testing.T) {
	var times []time.Time
	var sizes []int
	p := changing(t, 10, func(before, after []version) error {
		times, sizes = append(times, time.Now()), append(sizes, len(after))
		return nil
	})
	p.changes.period = 200 * time.Millisecond
	toggle := func(v *version) { v.members[0].is = terminating - v.members[0].is }
	if err := p.changes.edit(1, toggle).wait(); err != nil {
		t.Fatal(err)
	}
	var last *batch
	for number := range 4 {
		last = p.changes.edit(number, toggle)
	}
	if err := last.wait(); err != nil {
		t.Fatal(err)
	}
	if len(times) != 2 || sizes[1] != 4 || times[1].Sub(times[0]) < p.changes.period {
		t.Errorf("applied %v changes at %v, want 1, and 4 together %s later", sizes, times, p.changes.period)
	}
}

func TestNobodyKnowsWhatIsAppliedAfterAFailure(t *testing.T) {
	failure := errors.New("no")
	p := changing(t, 10, func(_, _ []version) error {
		defer func() { failure = nil }()
		return failure
	})
	for range 2 {
		if err := p.changes.edit(1, func(v *version) { v.members[0].is = gone }).wait(); err == nil || !strings.Contains(err.Error(), "change Services: no") {
			t.Errorf("error is %v, want the first one", err)
		}
	}
}

func TestChurnedServicesAreApart(t *testing.T) {
	for services, want := range map[int]int{1: 0, 2: 1, 10: 9, 101: 100, 1000: 100, 30_000: 100} {
		numbers := churned(services)
		seen := map[int]bool{asked(services): true}
		for _, n := range numbers {
			if seen[n] || n >= services {
				t.Errorf("of %d Services, %d is churned twice, is the asked one or is none", services, n)
			}
			seen[n] = true
		}
		if len(numbers) != want {
			t.Errorf("of %d Services %d are churned, want %d", services, len(numbers), want)
		}
	}
}

// What the kernel has after changes to and fro is what it had before.
func TestRulesAreChangedToAndFro(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root for a network namespace")
	}
	ns, err := traffic.NewNamespace(fmt.Sprintf("hg-contender-change-%d", os.Getpid()))
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	run := func(input string, args ...string) string { t.Helper(); return outputIn(t, ns, input, args...) }
	nft := func(services []service) []string { return rules.NFTables(ruled(services), netsOf(false).pods) }
	iptables := func(services []service) []string {
		return []string{rules.IPTables(ruled(services), netsOf(false).pods)}
	}
	for _, tc := range []struct {
		name   string
		rules  func([]service) []string
		change func(before, after []version) string
		all    []string
		some   []string
		list   []string
	}{
		{"nft", nft, nftablesChange, []string{"nft", "-f", "-"}, []string{"nft", "-f", "-"}, []string{"nft", "-s", "list", "table", "ip", "headgate-bench"}},
		{"iptables", iptables, iptablesChange, []string{"iptables-restore"}, []string{"iptables-restore", "--noflush"}, []string{"iptables", "-t", "nat", "-S"}},
	} {
		p := changing(t, 20, func(before, after []version) error {
			run(tc.change(before, after), tc.some...)
			return nil
		})
		for _, text := range tc.rules(p.services) {
			run(text, tc.all...)
		}
		first := run("", tc.list...)
		edit := func(number int, change func(*version)) string {
			if err := p.changes.edit(number, change).wait(); err != nil {
				t.Fatal(err)
			}
			return run("", tc.list...)
		}
		fewer := edit(3, func(v *version) { v.members[0].is = terminating })
		addr := p.services[3].Endpoints[0].String()
		if !strings.Contains(first, addr) || strings.Contains(fewer, addr) || !strings.Contains(fewer, p.services[3].Endpoints[1].String()) {
			t.Errorf("%s: an endpoint that terminates is still there:\n%s", tc.name, fewer)
		}
		more := edit(20, func(v *version) { v.deleted = false })
		if added := p.changes.wanted[20].members[2].addr.String(); !strings.Contains(more, added) {
			t.Errorf("%s: a new Service has no rules:\n%s", tc.name, more)
		}
		edit(3, func(v *version) { v.members[0].is = ready })
		last := edit(20, func(v *version) { v.deleted = true })
		if diff := cmp.Diff(sorted(first), sorted(last)); diff != "" {
			t.Errorf("%s: the rules are not as before (-before +after):\n%s", tc.name, diff)
		}
	}
}

// outputIn runs a command in a namespace and returns what it prints.
func outputIn(t *testing.T, ns *traffic.Namespace, input string, args ...string) string {
	t.Helper()
	cmd := exec.Command(args[0], args[1:]...)
	var output strings.Builder
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(input), &output, &output
	err := ns.Start(cmd)
	if err == nil {
		err = cmd.Wait()
	}
	if err != nil {
		t.Fatalf("%v: %s: %s, of\n%s", args, err, output.String(), input)
	}
	return output.String()
}

// sorted returns the lines in their order: chains come in that of their making.
func sorted(text string) []string {
	lines := strings.Split(text, "\n")
	slices.Sort(lines)
	return lines
}
