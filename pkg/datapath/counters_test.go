package datapath_test

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate/pkg/datapath"
	"github.com/headgate/headgate/tests/testenv"
)

var update = flag.Bool("update", false, "write the tables of counters and drop reasons into docs/metrics.md")

// What is counted is defined, and explained, in these files alone.
const (
	countersSource = "../../bpf/abi/types.h"
	failuresSource = "../../bpf/abi/traffic_types.h"
)

func TestThePageSaysWhatEveryCounterAndDropReasonMeans(t *testing.T) {
	counters, drops, err := datapath.Counted()
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []struct {
		title, column, source, opening, prefix string
		names                                  []string
	}{
		{"counters", "counter", countersSource, "struct counters {", "", counters},
		{"drop reasons", "reason", countersSource, "enum drop_reason {", "DROP_", drops},
		{"failures", "reason", failuresSource, "enum failure {", "FAILURE_", slices.Sorted(maps.Keys(datapath.Failures{}.ByReason()))},
	} {
		source, err := os.ReadFile(part.source)
		if err != nil {
			t.Fatal(err)
		}
		meanings, err := commented(string(source), part.opening, part.prefix)
		if err != nil {
			t.Fatal(err)
		}
		table := "| " + part.column + " | meaning |\n|---|---|\n"
		for _, name := range part.names {
			if meanings[name] == "" {
				t.Errorf("%s: %s has no comment of its own above it, which says what it means", part.source, name)
			}
			table += fmt.Sprintf("| `%s` | %s |\n", name, inMarkdown(meanings[name]))
		}
		begin := "<!-- " + part.title + ": go test ./pkg/datapath -run ThePage -update -->\n"
		testenv.MustHave(t, "../../docs/metrics.md", begin, table, "<!-- end of "+part.title+" -->\n", *update)
	}
}

func TestThePageHasEveryHook(t *testing.T) {
	hooks, err := datapath.Hooks()
	if err != nil {
		t.Fatal(err)
	}
	table := "| hook | attaches to |\n|---|---|\n"
	for _, h := range hooks {
		table += fmt.Sprintf("| `%s` | `%s` |\n", h[0], h[1])
	}
	testenv.MustHave(t, "../../docs/metrics.md", "<!-- hooks: go test ./pkg/datapath -run ThePage -update -->\n", table, "<!-- end of hooks -->\n", *update)
}

// commentedMap is a map with the comment above it.
var commentedMap = regexp.MustCompile(`/\*((?:[^*]|\*[^/])*)\*/\nstruct \{\n[^}]*\} (\w+) SEC\("\.maps"\);`)

func TestThePageSaysWhatEveryMapHas(t *testing.T) {
	source, err := os.ReadFile("../../bpf/abi/maps.h")
	if err != nil {
		t.Fatal(err)
	}
	meanings := map[string]string{}
	for _, m := range commentedMap.FindAllStringSubmatch(string(source), -1) {
		first, _, _ := strings.Cut(strings.Join(strings.Fields(strings.ReplaceAll(m[1], "\n *", " ")), " "), ". ")
		meanings[m[2]], _, _ = strings.Cut(strings.TrimSuffix(first, "."), ", see ")
	}
	if all := strings.Count(string(source), `SEC(".maps")`); all != len(meanings) {
		t.Errorf("of %d maps %d have a comment of their own", all, len(meanings))
	}
	table := "| map | has |\n|---|---|\n"
	for _, name := range slices.Sorted(maps.Keys(meanings)) {
		table += fmt.Sprintf("| `%s` | %s |\n", name, inMarkdown(meanings[name]))
	}
	testenv.MustHave(t, "../../docs/metrics.md", "<!-- maps: go test ./pkg/datapath -run ThePage -update -->\n", table, "<!-- end of maps -->\n", *update)
}

func TestACommentBelongsToTheMemberBelowIt(t *testing.T) {
	source := "struct x {\n\t/* one */\n\t__u64 a;\n\t/*\n\t * two\n\t * lines\n\t */\n\t__u64 b;\n\t__u64 c;\n};\nenum y {\n\t/* three */\n\tY_D,\n};\n"
	got, err := commented(source, "struct x {", "")
	if diff := cmp.Diff(map[string]string{"a": "one", "b": "two lines", "c": ""}, got); err != nil || diff != "" {
		t.Errorf("error %v, members (-want +got):\n%s", err, diff)
	}
	got, err = commented(source, "enum y {", "Y_")
	if diff := cmp.Diff(map[string]string{"d": "three"}, got); err != nil || diff != "" {
		t.Errorf("error %v, values (-want +got):\n%s", err, diff)
	}
	if _, err := commented(source, "struct z {", ""); err == nil {
		t.Error("no error without the struct")
	}
}

// member is a comment, and the name below it that a struct or an enum has.
var member = regexp.MustCompile(`(?m)(?:/\*((?s:.*?))\*/\s*)?^\s*(?:__u64 )?([A-Za-z_0-9]+)[;,]$`)

// commented returns the comments above what stands between an opening and its brace, by
// its name in small letters, without the prefix.
func commented(source, opening, prefix string) (map[string]string, error) {
	_, body, found := strings.Cut(source, opening+"\n")
	body, _, ended := strings.Cut(body, "\n};")
	if !found || !ended {
		return nil, fmt.Errorf("there is no %q", opening)
	}
	out := map[string]string{}
	for _, m := range member.FindAllStringSubmatch(body+"\n", -1) {
		words := strings.Fields(strings.ReplaceAll(m[1], "\n\t *", " "))
		out[strings.ToLower(strings.TrimPrefix(m[2], prefix))] = strings.Join(words, " ")
	}
	return out, nil
}

// code is what a page shows as code: a function, a flag.
var code = regexp.MustCompile(`\w+\(\)|--[a-z][a-z-]*`)

func inMarkdown(text string) string { return code.ReplaceAllString(text, "`$0`") }
