package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate/tests/testenv"
)

func TestMain(m *testing.M) {
	// As in main: preemption signals interrupt system calls.
	if err := os.Setenv("GODEBUG", "asyncpreemptoff=1"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(testenv.Main(m))
}

// Everything but the agent's process, which would have to be built first. The figures are
// worth nothing.
func TestEverySectionMeasuresSomething(t *testing.T) {
	testenv.Need(t)
	o := options{repo: "../..", plan: effort{rounds: 1, calls: 100, tcpCalls: 20, scales: []int{1, 20}, big: 150, changes: 3, saves: 2, starts: 1, packets: 1000, flows: []int{1, 64}, forwarded: [2]int{16, 64}, clusters: quickEffort.clusters}}
	b, err := newBench(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := b.close(); err != nil {
			t.Errorf("close: %v", err)
		}
	}()
	for _, s := range sections {
		if s.name == "memory" || s.name == "commands" || s.name == "scale" || s.name == "fair" {
			continue
		}
		tables, figures := len(b.report.Tables), len(b.report.Figures)
		if err := s.measure(b); err != nil {
			t.Fatalf("%s: %v", s.name, err)
		}
		if len(b.report.Tables) == tables || len(b.report.Figures) == figures {
			t.Errorf("%s reports nothing", s.name)
		}
	}
	for key, f := range b.report.Figures {
		if f.Low > f.Median || f.Median > f.High {
			t.Errorf("%s: median %f is outside the quartiles %f and %f", key, f.Median, f.Low, f.High)
		}
	}
	text := b.report.markdown()
	for _, want := range []string{"## Aims", "## Method", "connect() adds over no program, TCP, IPv6", "recvmsg4"} {
		if !strings.Contains(text, want) {
			t.Errorf("the report does not contain %q", want)
		}
	}
	for line := range strings.Lines(text) {
		if strings.Contains(line, "not measured") && !strings.Contains(line, apiServerAim) && !strings.Contains(line, commandsAim) && !strings.Contains(line, "connections") {
			t.Errorf("an aim has no figure: %s", line)
		}
	}
}

func TestASectionThatFailsIsNamedAndTheOthersStand(t *testing.T) {
	b := &bench{report: newReport(options{plan: quickEffort})}
	tell := func(title string, err error) section {
		return section{"of " + title, func(b *bench) error {
			b.report.table(table{Title: title, Header: []string{"what"}})
			return err
		}}
	}
	for _, s := range []section{tell("whole", nil), tell("half", errors.New("it broke")), tell("last", nil)} {
		if err := b.section(s); (err != nil) != (s.name == "of half") {
			t.Errorf("%s: %v", s.name, err)
		}
	}
	page := b.report.markdown()
	for text, want := range map[string]bool{"## whole": true, "## last": true, "## half": false, "Not measured: of half: it broke": true} {
		if strings.Contains(page, text) != want {
			t.Errorf("%q is in the page: %v, want %v:\n%s", text, !want, want, page)
		}
	}
}

func TestASummaryIsTheMedianWithQuartiles(t *testing.T) {
	for _, tc := range []struct {
		rounds []float64
		want   stat
	}{
		{nil, stat{}},
		{[]float64{7}, stat{7, 7, 7, 7}},
		{[]float64{5, 1, 3, 2, 4}, stat{3, 2, 4, 1}},
		{[]float64{1, 2}, stat{1.5, 1.25, 1.75, 1}},
	} {
		if diff := cmp.Diff(tc.want, summary(tc.rounds)); diff != "" {
			t.Errorf("summary of %v (-want +got):\n%s", tc.rounds, diff)
		}
	}
}

func TestAddressesAreCountedAcrossBytes(t *testing.T) {
	for _, tc := range []struct {
		first string
		n     int
		want  string
	}{
		{"10.96.0.0", 1, "10.96.0.1"},
		{"10.96.0.255", 1, "10.96.1.0"},
		{"10.128.0.0", 300_000, "10.132.147.224"},
		{"fd00:96::", 65_536, "fd00:96::1:0"},
	} {
		if got := nth(netip.MustParseAddr(tc.first), tc.n).String(); got != tc.want {
			t.Errorf("%s + %d is %s, want %s", tc.first, tc.n, got, tc.want)
		}
	}
}

func TestNumbersHaveCommas(t *testing.T) {
	for n, want := range map[int]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567"} {
		if got := count(n); got != want {
			t.Errorf("%d is %s, want %s", n, got, want)
		}
	}
}

// Each aim that was set beside an old figure has one, and each of the datapath a floor to tell
// where it is missed.
func TestAMissedAimIsAnsweredByItsFloor(t *testing.T) {
	r := newReport(options{plan: fullEffort})
	aims := append(slices.Collect(maps.Keys(before)), "packets/driver/foreign", "packets/driver/first", "packets/carry/syn", "forward/driver-1/few/frame", "forward/driver-1/many/frame",
		"traffic/tcp4/added", "scale/10000x10/at1000/cpu", "scale/10000x10/idle", "scale/10000x10/agent/resident", "scale/10000x10/replaced", "scale/100000x5/ready", "fair/lost_to_guesses")
	for _, flows := range r.plan.flows {
		aims = append(aims, fmt.Sprintf("packets/driver/repeat/%d", flows), fmt.Sprintf("packets/carry/%d", flows), fmt.Sprintf("packets/home/%d/over_local", flows), fmt.Sprintf("traffic/packet/later_in/%d", flows))
	}
	for _, key := range aims {
		r.value(key, "", 1e9)
	}
	page := r.markdown()
	for _, key := range aims {
		if key != "fair/held_connections" && !slices.ContainsFunc(floors, func(f floorText) bool { return f.answers(key) }) {
			t.Errorf("no floor answers %s", key)
		}
	}
	for _, f := range floors {
		if !strings.Contains(page, f.what) {
			t.Errorf("the page does not say the floor of %s", f.what)
		}
	}
	if known := len(r.missed); known != len(aims)-1 {
		t.Errorf("%d aims miss with figures that are far too large, want %d", known, len(aims)-1)
	}
	if page = newReport(options{plan: fullEffort}).markdown(); strings.Contains(page, "## Floors") {
		t.Error("aims that were not measured have floors")
	}
}
