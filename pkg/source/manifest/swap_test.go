package manifest

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"
)

// mustMount lays out a version of a ConfigMap as the kubelet does.
func mustMount(tb testing.TB, dir, version, text string) {
	tb.Helper()
	real := filepath.Join(dir, ".."+version)
	mustDo(tb, os.Mkdir(real, 0o755))
	mustWrite(tb, filepath.Join(real, "a.yaml"), text)
	mustDo(tb, os.Symlink(".."+version, filepath.Join(dir, "..data_tmp")))
	mustDo(tb, os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")))
}

func TestAMountedConfigMapIsSwapped(t *testing.T) {
	dir := t.TempDir()
	mustMount(t, dir, "v1", serviceYAML("web", 80))
	mustDo(t, os.Symlink("..data/a.yaml", filepath.Join(dir, "a.yaml")))
	r := mustRun(t, dir)
	if r.port("web") != 80 || len(r.services) != 1 {
		t.Fatalf("got %v", r.services)
	}
	r.check = never(t, "web")
	mustMount(t, dir, "v2", serviceYAML("web", 81))
	mustDo(t, os.RemoveAll(r.path("..v1")))
	r.untilPort(t, "web", 81)
	r.wantSaid(t)
}

func TestADirectoryThatVanishesLeavesEverythingUntilItIsBack(t *testing.T) {
	for _, tc := range []struct {
		name   string
		vanish func(tb testing.TB, dir string)
		alter  func(*Source)
		always string // what is said all the time
	}{
		{"removed", func(tb testing.TB, dir string) { mustDo(tb, os.RemoveAll(dir)) }, func(*Source) {}, ""},
		{"moved away", func(tb testing.TB, dir string) { mustDo(tb, os.Rename(dir, dir+"-away")) }, func(*Source) {}, ""},
		{"removed, without events", func(tb testing.TB, dir string) { mustDo(tb, os.RemoveAll(dir)) }, deaf,
			": cannot be watched, so changes take seconds: too many open files; raise fs.inotify.max_user_watches and max_user_instances"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "manifests")
			mustDo(t, os.Mkdir(dir, 0o755))
			mustWrite(t, filepath.Join(dir, "a.yaml"), docs(serviceYAML("web", 80), serviceYAML("api", 90)))
			r := mustRun(t, dir, patient, tc.alter)
			r.check = never(t, "web")
			var always []string
			if tc.always != "" {
				always = append(always, dir+tc.always)
			}
			for port := 81; port < 84; port++ {
				tc.vanish(t, dir)
				gone := dir + ": cannot be read: no such file or directory; everything stays as it was; bring the directory back"
				r.until(t, "a problem", func() bool { return len(r.problems) > len(always) })
				r.wantSaid(t, append(always, gone)...)
				if !r.partial || r.port("api") != 90 {
					t.Errorf("partial is %v, services %v", r.partial, r.services)
				}
				mustDo(t, os.Mkdir(dir, 0o755))
				mustWrite(t, filepath.Join(dir, "a.yaml"), docs(serviceYAML("web", port), serviceYAML("api", 90)))
				r.untilPort(t, "web", port)
				r.until(t, "the directory back", func() bool { return len(r.problems) == len(always) && !r.partial })
				r.wantSaid(t, always...)
				mustWrite(t, filepath.Join(dir, "a.yaml"), docs(serviceYAML("web", port+1000), serviceYAML("api", 90)))
				r.untilPort(t, "web", port+1000)
				mustDo(t, os.RemoveAll(dir+"-away"))
			}
		})
	}
}

func TestADirectoryThatStaysAwayForLongLosesNothing(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "manifests")
	mustDo(t, os.Mkdir(dir, 0o755))
	mustWrite(t, filepath.Join(dir, "a.yaml"), docs(serviceYAML("web", 80), serviceYAML("api", 90)))
	const settle = 300 * time.Millisecond
	r := mustRun(t, dir, func(s *Source) { s.queue.settle = settle })
	r.check = never(t, "web", "api")
	mustDo(t, os.RemoveAll(dir))
	r.until(t, "a problem", func() bool { return len(r.problems) > 0 })
	time.Sleep(2 * settle) // by now the file itself would be taken for removed
	mustDo(t, os.Mkdir(dir, 0o755))
	mustWrite(t, filepath.Join(dir, "a.yaml"), docs(serviceYAML("web", 81), serviceYAML("api", 90)))
	r.untilPort(t, "web", 81)
}

// deaf is a source for which the kernel has no events left.
func deaf(s *Source) {
	s.queue.poll = 10 * time.Millisecond
	s.watcher = func() (*fsnotify.Watcher, error) { return nil, syscall.EMFILE }
}

func TestADirectoryThatIsALinkIsSwapped(t *testing.T) {
	base := t.TempDir()
	for _, version := range []string{"v1", "v2"} {
		mustDo(t, os.Mkdir(filepath.Join(base, version), 0o755))
	}
	mustWrite(t, filepath.Join(base, "v1/a.yaml"), docs(serviceYAML("web", 80), serviceYAML("api", 90)))
	mustWrite(t, filepath.Join(base, "v2/a.yaml"), serviceYAML("web", 81))
	dir := filepath.Join(base, "current")
	mustDo(t, os.Symlink("v1", dir))
	r := mustRun(t, dir)
	r.check = never(t, "web")
	mustDo(t, os.Symlink("v2", dir+".new"))
	mustDo(t, os.Rename(dir+".new", dir))
	r.untilPort(t, "web", 81)
	r.untilPort(t, "api", 0)
	mustWrite(t, filepath.Join(base, "v2/a.yaml"), serviceYAML("web", 82))
	r.untilPort(t, "web", 82)
}

func TestChangesBehindALinkAreFoundByLooking(t *testing.T) {
	elsewhere := filepath.Join(t.TempDir(), "web.yaml")
	mustWrite(t, elsewhere, serviceYAML("web", 80))
	dir := t.TempDir()
	mustDo(t, os.Symlink(elsewhere, filepath.Join(dir, "a.yaml")))
	r := mustRun(t, dir, polling)
	mustWrite(t, elsewhere, serviceYAML("web", 8081))
	r.untilPort(t, "web", 8081)
}
