package cli

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate/pkg/datapath"
)

func TestWatchingTellsWhatIsNew(t *testing.T) {
	entries := func(n uint32) item {
		return &shownMap{datapath.MapInfo{Name: "frontends", Entries: &n, MaxEntries: 10}}
	}
	other := &shownMap{datapath.MapInfo{Name: "a", MaxEntries: 10}}
	steps := [][]item{{entries(1), other}, {entries(1), other}, {entries(2), other}, {entries(2)}}

	var text, programs strings.Builder
	people := newFollower(bpfMaps.untyped(), &env{}, &text)
	e := &env{}
	e.JSON = true
	others := newFollower(bpfMaps.untyped(), e, &programs)
	for _, items := range steps {
		for _, f := range []*follower{people, others} {
			if err := f.tell(items); err != nil {
				t.Fatal(err)
			}
		}
	}
	want := `MAP  TYPE  KEY B  VALUE B  ENTRIES  MAX  FULL  MEMORY KiB
frontends        0      0        1        10   10%   0
a                0      0        -        10   -     0
frontends        0      0        2        10   20%   0
a                0      0        -        10   -     0           gone
`
	if diff := cmp.Diff(want, text.String()); diff != "" {
		t.Errorf("for people (-want +got):\n%s", diff)
	}
	var types []string
	for line := range strings.Lines(programs.String()) {
		types = append(types, strings.Split(line, `"`)[3])
	}
	if diff := cmp.Diff([]string{"ADDED", "ADDED", "MODIFIED", "DELETED"}, types); diff != "" {
		t.Errorf("for programs (-want +got):\n%s", diff)
	}
}

func TestColumnsAreSortedByNumberOrText(t *testing.T) {
	less := []any{seconds(10), uint64(9), percent(8), 7, "a", "b", nil}
	for i, a := range less {
		for j, b := range less {
			if got := compareCells(a, b); (got < 0) != (i < j) {
				t.Errorf("%v and %v: %d", a, b, got)
			}
		}
	}
}
