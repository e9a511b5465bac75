package fences

import (
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate/tests/testenv"
)

// below is the folders of bpf/ that the headers of each may include besides their own.
// Sockets and packets share the choice of a backend, and know nothing of each other.
var below = map[string][]string{
	"bpf/abi":   nil,
	"bpf/lib":   {"bpf/abi"},
	"bpf/lb":    {"bpf/abi", "bpf/lib"},
	"bpf/sock":  {"bpf/abi", "bpf/lib", "bpf/lb"},
	"bpf/flow":  {"bpf/abi", "bpf/lib", "bpf/lb"},
	"bpf/carry": {"bpf/abi", "bpf/lib", "bpf/lb", "bpf/flow"},
	"bpf/tc":    {"bpf/abi", "bpf/lib", "bpf/lb", "bpf/flow", "bpf/carry"},
	"bpf/xdp":   {"bpf/abi", "bpf/lib", "bpf/lb", "bpf/flow", "bpf/carry", "bpf/tc"},
}

// frameHeaders are the headers of bpf/tc that read and write packets, as TC has them, as do those
// of bpf/xdp. All others decide: they take a struct packet, so that any hook can use them.
var frameHeaders = []string{"parse", "fragment", "nat", "icmp", "reset", "redirect", "repeat", "tracked", "carry", "uncover", "outer", "cut", "mss", "passage", "too_long", "echo", "forged", "turned", "sight", "device"}

// contextOfTC is the type of what a program at TC is given.
var contextOfTC = regexp.MustCompile(`\b__sk_buff\b`)

var include = regexp.MustCompile(`(?m)^#include "([^"]+)"`)

func TestEveryHeaderCompilesAlone(t *testing.T) {
	for _, f := range headers(mustReadAll(t)) {
		t.Run(f.path, func(t *testing.T) {
			t.Parallel()
			testenv.CompileAlone(t, path.Join(root, f.path))
		})
	}
}

func TestHeadersIncludeOnlyWhatIsBelow(t *testing.T) {
	for _, complaint := range climbing(headers(mustReadAll(t))) {
		t.Error(complaint)
	}
}

func TestHeadersThatClimbAreReported(t *testing.T) {
	got := climbing([]file{
		{"bpf/abi/maps.h", []byte("#include \"../lib/addr.h\"\n")},
		{"bpf/lib/addr.h", []byte("#include <linux/bpf.h>\n#include \"../abi/types.h\"\n")},
		{"bpf/tc/nat.h", []byte("#include \"../sock/sock.h\"\n#include \"flow.h\"\n")},
		{"bpf/tc/flow.h", []byte("#include \"packet.h\"\n")},
		{"bpf/tc/packet.h", []byte("#include \"nat.h\"\n")},
		{"bpf/new/a.h", nil},
	})
	want := []string{
		"bpf/abi/maps.h: includes bpf/lib/addr.h, which is not below it",
		"bpf/tc/nat.h: includes bpf/sock/sock.h, which is not below it",
		"bpf/new/a.h: is in a folder that no rule is for",
		"a circle of includes: bpf/tc/flow.h, bpf/tc/packet.h, bpf/tc/nat.h, bpf/tc/flow.h",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("headers that climb (-want +got):\n%s", diff)
	}
}

func TestWhatDecidesHasNoFrame(t *testing.T) {
	for _, complaint := range deciding(headers(mustReadAll(t))) {
		t.Error(complaint)
	}
}

func TestWhatDecidesWithAFrameIsReported(t *testing.T) {
	got := deciding([]file{
		{"bpf/tc/nat.h", []byte("struct __sk_buff *skb;\n#include \"parse.h\"\n")},
		{"bpf/tc/balance.h", []byte("/* No __sk_buff. */\nstruct __sk_buff *skb;\n")},
		{"bpf/tc/conntrack.h", []byte("#include \"nat.h\"\n#include \"flow.h\"\n")},
		{"bpf/lb/select.h", []byte("static int choose(struct __sk_buff *skb)\n")},
		{"bpf/lb/table.h", []byte("/* Not by a struct __sk_buff. */\n")},
	})
	want := []string{
		"bpf/tc/balance.h: names __sk_buff, which only headers that read and write packets do",
		"bpf/tc/conntrack.h: includes nat.h, which reads or writes packets",
		"bpf/lb/select.h: names __sk_buff, which only headers that read and write packets do",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("headers that decide with a frame (-want +got):\n%s", diff)
	}
}

func TestHeadersIncludeWhatTheyCall(t *testing.T) {
	files := headers(mustReadAll(t))
	for _, complaint := range unincluded(files, functionsOf(files)) {
		t.Error(complaint)
	}
}

func TestCallsOfWhatIsNotIncludedAreReported(t *testing.T) {
	files := []file{
		{"bpf/tc/a.h", []byte("#include \"../lib/b.h\"\nstatic int a(void)\n{\n\treturn b() + c();\n}\n")},
		{"bpf/lib/b.h", []byte("#include \"c.h\"\nstatic int b(void)\n{\n\treturn c();\n}\n")},
		{"bpf/lib/c.h", []byte("static int c(void)\n{\n\treturn 0;\n}\n")},
	}
	want := []string{"bpf/tc/a.h: calls c and does not include bpf/lib/c.h"}
	if diff := cmp.Diff(want, unincluded(files, functionsOf(files))); diff != "" {
		t.Errorf("calls of what is not included (-want +got):\n%s", diff)
	}
}

// headers is the headers of the product's programs.
func headers(files []file) (found []file) {
	for _, f := range files {
		if strings.HasPrefix(f.path, "bpf/") && path.Ext(f.path) == ".h" {
			found = append(found, f)
		}
	}
	return found
}

// climbing is a line for every header that includes what is not below it.
func climbing(files []file) (complaints []string) {
	includes := map[string][]string{}
	for _, f := range files {
		dir := path.Dir(f.path)
		folders, known := below[dir]
		if !known {
			complaints = append(complaints, f.path+": is in a folder that no rule is for")
			continue
		}
		includes[f.path] = includesOf(f)
		for _, included := range includes[f.path] {
			if from := path.Dir(included); from != dir && !slices.Contains(folders, from) {
				complaints = append(complaints, fmt.Sprintf("%s: includes %s, which is not below it", f.path, included))
			}
		}
	}
	for _, header := range slices.Sorted(maps.Keys(includes)) {
		if circle := circleFrom(includes, header, nil); circle != nil {
			return append(complaints, "a circle of includes: "+strings.Join(circle, ", "))
		}
	}
	return complaints
}

// includesOf is the headers of the product that a file includes.
func includesOf(f file) (paths []string) {
	for _, m := range include.FindAllSubmatch(f.data, -1) {
		paths = append(paths, path.Join(path.Dir(f.path), string(m[1])))
	}
	return paths
}

// deciding is a line for every header that decides and knows of frames.
func deciding(files []file) (complaints []string) {
	handlesFrames := func(header string) bool {
		return path.Dir(header) == "bpf/xdp" || path.Dir(header) == "bpf/tc" && slices.Contains(frameHeaders, strings.TrimSuffix(path.Base(header), ".h"))
	}
	for _, f := range files {
		if handlesFrames(f.path) {
			continue
		}
		if contextOfTC.MatchString(withoutComments(f.data)) {
			complaints = append(complaints, f.path+": names __sk_buff, which only headers that read and write packets do")
		}
		for _, included := range includesOf(f) {
			if handlesFrames(included) {
				complaints = append(complaints, fmt.Sprintf("%s: includes %s, which reads or writes packets", f.path, path.Base(included)))
			}
		}
	}
	return complaints
}

// unincluded is a line for every function that a header calls by way of another
// header: includes say where to look.
func unincluded(files []file, functions map[string]*function) (complaints []string) {
	includes := map[string][]string{}
	for _, f := range files {
		includes[f.path] = append(includesOf(f), f.path)
	}
	for _, name := range slices.Sorted(maps.Keys(functions)) {
		caller := "bpf/" + functions[name].file
		for _, called := range functions[name].calls {
			if callee := "bpf/" + functions[called].file; !slices.Contains(includes[caller], callee) {
				complaints = append(complaints, fmt.Sprintf("%s: calls %s and does not include %s", caller, called, callee))
			}
		}
	}
	return complaints
}

// circleFrom is a way from a header back to one that was passed, or nil.
func circleFrom(includes map[string][]string, header string, passed []string) []string {
	if at := slices.Index(passed, header); at >= 0 {
		return append(passed[at:], header)
	}
	for _, included := range includes[header] {
		if circle := circleFrom(includes, included, append(passed, header)); circle != nil {
			return circle
		}
	}
	return nil
}
