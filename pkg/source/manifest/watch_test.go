package manifest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/headgate/headgate/pkg/lb"
)

// running is a source at work on real files.
type running struct {
	*world
	dir     string
	updates chan lb.Update
	check   func(*world) // after every update, for what must never be seen
}

// mustRun starts a source on a directory and takes its first update. Unless
// altered, only events tell it of changes: the poll never comes.
func mustRun(tb testing.TB, dir string, alter ...func(*Source)) *running {
	tb.Helper()
	s := New(dir, "node-a")
	s.queue.poll = time.Hour
	for _, a := range alter {
		a(s)
	}
	r := &running{world: newWorld(), dir: dir, updates: make(chan lb.Update, 1000)}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- s.Run(ctx, func(u lb.Update) { r.updates <- u }) }()
	tb.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			tb.Errorf("run: %v", err)
		}
	})
	r.until(tb, "the first update", func() bool { return r.world.updates == 1 })
	return r
}

// until takes updates until something holds.
func (r *running) until(tb testing.TB, what string, holds func() bool) {
	tb.Helper()
	late := time.After(10 * time.Second)
	for !holds() {
		select {
		case u := <-r.updates:
			r.take(u)
			if r.check != nil {
				r.check(r.world)
			}
		case <-late:
			tb.Fatalf("never came: %s; have %v, %v, %v", what, r.services, r.slices, r.said())
		}
	}
}

// untilPort waits for the port of a Service.
func (r *running) untilPort(tb testing.TB, name string, port int) {
	tb.Helper()
	r.until(tb, fmt.Sprintf("%s on port %d", name, port), func() bool { return r.port(name) == port })
}

func (r *running) path(name string) string { return filepath.Join(r.dir, name) }

// never fails when one of the Services is not there after some update.
func never(tb testing.TB, names ...string) func(*world) {
	return func(w *world) {
		for _, name := range names {
			if w.port(name) == 0 {
				tb.Errorf("%s was gone for a while", name)
			}
		}
	}
}

// patient sees to it that, however busy the machine, the pause between two steps
// of a test does not look like the end.
func patient(s *Source) { s.queue.settle = time.Second }

func polling(s *Source) { s.queue.poll = 10 * time.Millisecond }

func TestAnEmptyDirectoryIsAnUpdateToo(t *testing.T) {
	r := mustRun(t, t.TempDir())
	if len(r.services) != 0 || r.node.Name != "node-a" {
		t.Errorf("got %v", r.world)
	}
	mustWrite(t, r.path("a.yaml"), serviceYAML("web", 80))
	r.untilPort(t, "web", 80)
}

func TestTheFirstUpdateHasEverything(t *testing.T) {
	dir := t.TempDir()
	for i := range 100 {
		mustWrite(t, filepath.Join(dir, fmt.Sprintf("%d.yaml", i)), serviceYAML(fmt.Sprintf("web-%d", i), 80))
	}
	mustWrite(t, filepath.Join(dir, "node.yml"), nodeYAML)
	mustWrite(t, filepath.Join(dir, ".hidden.yaml"), serviceYAML("hidden", 80))
	mustWrite(t, filepath.Join(dir, "web.yaml~"), serviceYAML("backup", 80))
	mustWrite(t, filepath.Join(dir, "notes.txt"), "{")
	mustDo(t, os.Mkdir(filepath.Join(dir, "sub"), 0o755))
	r := mustRun(t, dir)
	r.wantSaid(t)
	if len(r.services) != 100 || r.node.Zone != "zone-a" {
		t.Errorf("got %d services, node %v", len(r.services), r.node)
	}
}

func TestADirectoryThatDoesNotExistIsAnError(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "nowhere")
	err := New(dir, "node-a").Run(context.Background(), func(lb.Update) { t.Error("an update") })
	want := "read manifests in " + dir + ": no such file or directory; create the directory or name another"
	if err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestEveryWayOfSavingIsSeen(t *testing.T) {
	for _, tc := range []struct {
		name string
		save func(tb testing.TB, path, text string)
	}{
		{"written in place", mustWrite},
		{"renamed over", mustReplace},
		{"moved away, then written anew", func(tb testing.TB, path, text string) {
			mustDo(tb, os.Rename(path, path+"~"))
			mustWrite(tb, path, text)
		}},
		{"removed, then written anew a little later", func(tb testing.TB, path, text string) {
			mustDo(tb, os.Remove(path))
			time.Sleep(10 * time.Millisecond)
			mustWrite(tb, path, text)
		}},
		{"emptied, then written bit by bit", func(tb testing.TB, path, text string) {
			f, err := os.Create(path)
			mustDo(tb, err)
			for _, part := range strings.SplitAfter(text, "a") {
				time.Sleep(3 * time.Millisecond)
				_, err := f.WriteString(part)
				mustDo(tb, err)
			}
			mustDo(tb, f.Close())
		}},
		{"written document by document, each of them whole", func(tb testing.TB, path, text string) {
			f, err := os.Create(path)
			mustDo(tb, err)
			for _, part := range strings.SplitAfter(text, "---\n") {
				_, err := f.WriteString(part)
				mustDo(tb, err)
				time.Sleep(20 * time.Millisecond)
			}
			mustDo(tb, f.Close())
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := t.TempDir()
			mustWrite(t, filepath.Join(dir, "a.yaml"), docs(serviceYAML("web", 80), serviceYAML("api", 90)))
			r := mustRun(t, dir, patient)
			r.check = never(t, "web", "api")
			for port := 81; port < 85; port++ {
				tc.save(t, r.path("a.yaml"), docs(serviceYAML("web", port), serviceYAML("api", 90)))
				r.untilPort(t, "web", port)
				r.wantSaid(t)
			}
		})
	}
}

func TestRemovalIsBelievedAfterAMoment(t *testing.T) {
	dir := t.TempDir()
	mustWrite(t, filepath.Join(dir, "a.yaml"), docs(serviceYAML("web", 80), serviceYAML("api", 90)))
	r := mustRun(t, dir)
	mustWrite(t, r.path("a.yaml"), serviceYAML("api", 90))
	r.untilPort(t, "web", 0)
	mustDo(t, os.Remove(r.path("a.yaml")))
	r.untilPort(t, "api", 0)
	mustWrite(t, r.path("a.yaml"), serviceYAML("api", 91))
	r.untilPort(t, "api", 91)
	mustWrite(t, r.path("a.yaml"), "")
	r.untilPort(t, "api", 0)
}

func TestABrokenFileIsSaidAndMended(t *testing.T) {
	r := mustRun(t, t.TempDir())
	mustWrite(t, r.path("b.yaml"), serviceYAML("web", 80))
	r.untilPort(t, "web", 80)
	mustWrite(t, r.path("b.yaml"), "kind: [\n")
	r.until(t, "a problem", func() bool { return len(r.problems) > 0 })
	r.wantSaid(t, r.path("b.yaml")+":1: document 1: cannot be read: did not find expected node content; correct the syntax")
	mustWrite(t, r.path("a.yaml"), serviceYAML("api", 90))
	r.untilPort(t, "api", 90)
	if r.port("web") != 80 || !r.partial {
		t.Errorf("got %v, partial %v", r.services, r.partial)
	}
	mustWrite(t, r.path("b.yaml"), serviceYAML("web", 81))
	r.untilPort(t, "web", 81)
	r.wantSaid(t)
}

func TestFilesThatCannotBeReadAreSaid(t *testing.T) {
	for _, tc := range []struct {
		name  string
		spoil func(tb testing.TB, path string)
		want  string
	}{
		{"a link to nowhere", func(tb testing.TB, path string) { mustDo(tb, os.Symlink("nowhere", path)) },
			": cannot be read: no such file or directory; make it readable for the agent, or remove it"},
		{"over the limit", func(tb testing.TB, path string) {
			mustWrite(tb, path, "")
			mustDo(tb, os.Truncate(path, maxFileSize+1))
		}, ": is 67108865 bytes long, over the limit of 64 MiB; split it into several files"},
		{"a device", func(tb testing.TB, path string) { mustDo(tb, os.Symlink("/dev/null", path)) },
			": is not a regular file; put a file in its place or give it another ending"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "a.yaml")
			mustWrite(t, path, serviceYAML("web", 80))
			r := mustRun(t, dir)
			r.check = never(t, "web")
			tc.spoil(t, path+".new")
			mustDo(t, os.Rename(path+".new", path))
			r.until(t, "a problem", func() bool { return len(r.problems) > 0 })
			r.wantSaid(t, path+tc.want)
			next := mustRun(t, dir)
			next.wantSaid(t, path+tc.want)
			if !r.partial || !next.partial {
				t.Errorf("partial is %v, and after a restart %v", r.partial, next.partial)
			}
			mustReplace(t, path, serviceYAML("web", 81))
			r.untilPort(t, "web", 81)
			r.wantSaid(t)
		})
	}
}

func TestADirectoryInPlaceOfAFileIsSaid(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a.yaml")
	mustDo(t, os.Mkdir(path, 0o755))
	for name, r := range map[string]*running{"by events": mustRun(t, dir), "polling": mustRun(t, dir, polling)} {
		r.wantSaid(t, path+": is not a regular file; put a file in its place or give it another ending")
		if !r.partial {
			t.Errorf("%s: partial is not set", name)
		}
	}
	r := mustRun(t, dir)
	mustDo(t, os.Remove(path))
	mustWrite(t, path, serviceYAML("web", 80))
	r.untilPort(t, "web", 80)
	r.wantSaid(t)
}

func TestLooksTakeLessOfAProcessorWhereEventsTell(t *testing.T) {
	told, untold := newWatch(t.TempDir(), fsnotify.NewWatcher), newWatch(t.TempDir(), nil)
	defer told.close()
	if told.renew(); told.share() <= untold.share() {
		t.Errorf("one in %d with events, one in %d without", told.share(), untold.share())
	}
}
