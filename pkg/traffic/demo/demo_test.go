package demo

import (
	"bytes"
	"context"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate/pkg/traffic"
)

var smallDemo = size{
	load: 150 * time.Millisecond, turns: 2, turn: 10 * time.Millisecond, rate: 300, calm: 300 * time.Millisecond,
}

func TestTheStoryEndsWellWithAnAgentThatBalances(t *testing.T) {
	output, err := mustRunDemo(t, context.Background(), "")
	if err != nil {
		t.Fatalf("demo: %s\n%s", err, output)
	}
	for _, want := range []string{"✓ TCP to 10.96.0.10:80", "✓ UDP, sockets that are not connected", "TCP IPv4", "UDP IPv6", "through the Service", "web-a2 put back", "Everything was as expected"} {
		if !strings.Contains(output, want) {
			t.Errorf("the output lacks %q:\n%s", want, output)
		}
	}
	if lines := strings.Count(output, "\n"); lines > 60 {
		t.Errorf("the output has %d lines, want at most 60", lines)
	}
}

func TestAnAnswerThatIsLateIsToldAndNothingElse(t *testing.T) {
	output, err := mustRunDemo(t, context.Background(), "late")
	if err != nil || !strings.Contains(output, ", 1 took longer than 1s") {
		t.Errorf("demo: %v\n%s", err, output)
	}
}

func TestTheDemoSaysWhatWentWrong(t *testing.T) {
	for _, tc := range []struct {
		name, fault, want string
	}{
		{"an agent that dies ends the demo with its log", "die", "the stand-in dies as asked"},
		{"an agent that prefers a backend is found out", "unfair", "web-a1 answers"},
		{"one connection without an answer is found out", "mute", "no failure, not 1 timeout"},
		{"an agent that misses a change is found out", "blind", "web-a2 gets no new connection"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			output, err := mustRunDemo(t, context.Background(), tc.fault)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Fatalf("demo: got error %v, want one with %q\n%s", err, tc.want, output)
			}
		})
	}
}

func TestCtrlCEndsTheDemoAndLeavesNothing(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
	defer cancel()
	if output, err := mustRunDemo(t, ctx, ""); err == nil {
		t.Fatalf("the demo ended well:\n%s", output)
	}
}

// mustRunDemo runs a small demo with a stand-in agent and fails the test if
// that leaves anything behind.
func mustRunDemo(tb testing.TB, ctx context.Context, fault string) (output string, err error) {
	tb.Helper()
	if os.Geteuid() != 0 {
		if os.Getenv("HEADGATE_REQUIRE_PRIVILEGED") == "1" {
			tb.Fatal("needs root")
		}
		tb.Skip("needs root to make network namespaces")
	}
	tb.Setenv(standInEnv, fault)
	program, err := os.Executable()
	if err != nil {
		tb.Fatal(err)
	}
	var out bytes.Buffer
	worker := func() *exec.Cmd { return exec.Command(program, "worker") }
	d := &demo{headgate: program, worker: worker, size: smallDemo, screen: newScreen(&out)}
	err = d.run(ctx)
	for _, dir := range []string{"/run/netns", runDir, d.stage.cgroupTop} {
		left, globErr := filepath.Glob(filepath.Join(dir, traffic.RunName(namePrefix)+"*"))
		if globErr != nil || len(left) > 0 {
			tb.Errorf("the demo left %v behind (%v)", left, globErr)
		}
	}
	return out.String(), err
}

func TestAnEndpointIsTakenOutAsAPersonWould(t *testing.T) {
	removed := []netip.Addr{netip.MustParseAddr("10.244.1.2"), netip.MustParseAddr("fd00:244:1::2")}
	for _, tc := range []struct {
		name, text, want string
		removed          int
	}{
		{
			name:    "in flow lists and in block lists, of several documents, in any order of fields",
			text:    "# a\nendpoints:\n  - addresses: [10.244.1.1]\n    zone: a\n  - addresses: [10.244.1.2]\n    zone: a\n---\nendpoints:\n- zone: b\n  addresses:\n  - \"fd00:244:1::2\"\n\n- addresses: [\"fd00::1\"]\nports: []\n",
			want:    "# a\nendpoints:\n  - addresses: [10.244.1.1]\n    zone: a\n---\nendpoints:\n\n- addresses: [\"fd00::1\"]\nports: []\n",
			removed: 2,
		},
		{
			name: "but not an address that only begins alike",
			text: "endpoints:\n- addresses: [10.244.1.20]\n",
			want: "endpoints:\n- addresses: [10.244.1.20]\n",
		},
		{
			name: "and not outside the list of endpoints",
			text: "externalIPs:\n- 10.244.1.2\n",
			want: "externalIPs:\n- 10.244.1.2\n",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, count := withoutEndpoint(tc.text, removed)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("text (-want +got):\n%s", diff)
			}
			if count != tc.removed {
				t.Errorf("removed %d endpoints, want %d", count, tc.removed)
			}
		})
	}
}

func TestThousandsAreSetApart(t *testing.T) {
	for n, want := range map[uint64]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567"} {
		if got := thousands(n); got != want {
			t.Errorf("thousands(%d) = %q, want %q", n, got, want)
		}
	}
}

func TestABarIsAsLongAsItsShare(t *testing.T) {
	for _, tc := range []struct {
		name  string
		share float64
		want  string
	}{
		{"nothing has no bar", 0, ""},
		{"everything fills the width", 1, "████"},
		{"a half fills half", 0.5, "██"},
		{"a part of a character is drawn in eighths", 1.0 / 32, "▏"},
		{"seven eighths are drawn", 7.0 / 32, "▉"},
		{"more than everything stays within the width", 2, "████"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := bar(tc.share, 4); got != tc.want {
				t.Errorf("bar(%v, 4) = %q, want %q", tc.share, got, tc.want)
			}
		})
	}
}

func TestFairBoundsWidenWhereFewChoicesWereMade(t *testing.T) {
	low, high := fairBounds(3, 5000)
	if low < 0.249 || low > 0.251 || high < 0.416 || high > 0.418 {
		t.Errorf("of 5000 choices: %v to %v, want 0.25 to 0.417", low, high)
	}
	low, high = fairBounds(3, 100)
	if low > 0.06 || high < 0.6 {
		t.Errorf("of 100 choices: %v to %v, want six standard deviations, 0.05 to 0.62", low, high)
	}
	if low, high = fairBounds(3, 0); low != 0 || high != 1 {
		t.Errorf("of no choices: %v to %v, want 0 to 1", low, high)
	}
}
