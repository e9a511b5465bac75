package command

import (
	"bytes"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A row that does not fit goes on below its second cell, and nothing of it is lost.
func TestLinesFitTheScreen(t *testing.T) {
	var out bytes.Buffer
	l := Lines{Screen: 44}
	for _, row := range [][]string{{"12:00:00", "connect", "10.96.0.10:80/TCP", "10.244.1.1:8080/TCP", "default/web"}, {"12:00:01", "in", "a", "b", "c"}} {
		if err := l.Write(&out, row); err != nil {
			t.Fatal(err)
		}
	}
	const want = `12:00:00  connect  10.96.0.10:80/TCP
          10.244.1.1:8080/TCP  default/web
12:00:01  in       a                  b
          c
`
	if out.String() != want {
		t.Errorf("got\n%swant\n%s", out.String(), want)
	}
}

func TestLinesFitAScreenOfAnyWidth(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for range 2000 {
		l := Lines{Screen: 1 + r.IntN(100)}
		var out bytes.Buffer
		var all []string
		for range 1 + r.IntN(3) {
			row := make([]string, 1+r.IntN(6))
			for i := range row {
				row[i] = strings.Repeat("x", 1+r.IntN(20))
			}
			all = append(all, row...)
			if err := l.Write(&out, row); err != nil {
				t.Fatal(err)
			}
		}
		if got := strings.Fields(out.String()); !slices.Equal(got, all) {
			t.Fatalf("%d characters: wrote %q of %q", l.Screen, got, all)
		}
		for line := range strings.Lines(out.String()) {
			if cells := strings.Fields(line); len(strings.TrimSuffix(line, "\n")) > l.Screen && len(cells) > 2 {
				t.Fatalf("%d characters: %q", l.Screen, line)
			}
		}
	}
}

func TestWhatIsNoScreenHasRoomForAnyLine(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if l := LinesTo(f); l.Screen != 0 {
		t.Errorf("a file has room for %d characters", l.Screen)
	}
	if l := LinesTo(&bytes.Buffer{}); l.Screen != 0 {
		t.Errorf("a buffer has room for %d characters", l.Screen)
	}
}
