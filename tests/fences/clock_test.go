package fences

import (
	"bytes"
	"fmt"
	"path"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// clockHeader is the only file of C that subtracts times: CPUs do not agree on the
// present, and a difference without sign then is thousands of years.
const clockHeader = "bpf/lib/time.h"

var (
	// difference is a subtraction, which clang-format writes between spaces, with
	// the operand before it and the one behind.
	difference = regexp.MustCompile(`(\S+)\s+-=?\s+(\w+\([^()]*\)|\S+)`)
	// timeName is in the name of what holds a time.
	timeName = regexp.MustCompile(`\bnow\b|_(?:ns|s|at|since)\b|\bsent\b|sent_|mstamp|time\b|ktime|jiffies|\bticks?\b|last_seen`)
	comment  = regexp.MustCompile(`(?s)/\*.*?\*/|//[^\n]*`)
)

func TestTimesAreSubtractedInOnePlace(t *testing.T) {
	for _, complaint := range timeDifferences(mustReadAll(t)) {
		t.Error(complaint)
	}
}

func TestDifferencesOfTimesAreReported(t *testing.T) {
	for code, reported := range map[string]bool{
		"x = now - flow->last_seen_ns;":          true,
		"x = now -\n\t\tflow->last_seen_ns;":     true,
		"if ((__s64)(now - at) < 0)":             true,
		"x = bpf_ktime_get_coarse_ns() - c->at;": true,
		"x = received - READ(tp, lsndtime);":     true,
		"left_ns -= spent;":                      true,
		"x = elapsed(now, flow->last_seen_ns);":  false,
		"x = flow->last_seen_ns;":                false,
		"n = size - 1; /* now - last_seen_ns */": false,
		"x = s->chosen - v.offset;":              false,
		"next_trial_ns = now + 5;":               false,
	} {
		if got := len(timeDifferences([]file{{"bpf/a.h", []byte(code)}})) > 0; got != reported {
			t.Errorf("%q is reported: %v, want %v", code, got, reported)
		}
	}
	got := timeDifferences([]file{
		{clockHeader, []byte("now - then")}, {"docs/a.md", []byte("now - then")}, {"bpf/a.bpf.c", []byte("\nnow - then")},
	})
	want := []string{"bpf/a.bpf.c:2: subtracts times (now - then), which only " + clockHeader + " may"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("differences of times (-want +got):\n%s", diff)
	}
}

// timeDifferences is a line for every subtraction of times in C.
func timeDifferences(files []file) (complaints []string) {
	for _, f := range files {
		isC := path.Ext(f.path) == ".c" || path.Ext(f.path) == ".h"
		if !isC || !strings.HasPrefix(f.path, "bpf/") || f.path == clockHeader {
			continue
		}
		code := []byte(withoutComments(f.data))
		for _, at := range difference.FindAllSubmatchIndex(code, -1) {
			left, right := code[at[2]:at[3]], code[at[4]:at[5]]
			if timeName.Match(left) || timeName.Match(right) {
				line := 1 + bytes.Count(code[:at[2]], []byte("\n"))
				complaints = append(complaints, fmt.Sprintf("%s:%d: subtracts times (%s - %s), which only %s may", f.path, line, left, right, clockHeader))
			}
		}
	}
	return complaints
}
