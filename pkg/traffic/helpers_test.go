package traffic

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const testPrefix = "headgate-test"

// testName is unique among tests that run at the same time.
func testName(tb testing.TB) string {
	name, _, _ := strings.Cut(tb.Name(), "/")
	return RunName(testPrefix) + "-" + name
}

func requireRoot(tb testing.TB) {
	tb.Helper()
	if os.Geteuid() == 0 {
		return
	}
	if os.Getenv("HEADGATE_REQUIRE_PRIVILEGED") == "1" {
		tb.Fatal("needs root")
	}
	tb.Skip("needs root to make network namespaces")
}

// threadsIn returns the threads of all processes that are in one of the
// namespaces, after giving them two seconds to leave: a thread outlives by a
// moment the goroutine that it was locked to.
func threadsIn(tb testing.TB, inodes []uint64) []string {
	tb.Helper()
	var inside []string
	for range 100 {
		paths, err := filepath.Glob("/proc/[0-9]*/task/*/ns/net")
		if err != nil {
			tb.Fatal(err)
		}
		inside = slices.DeleteFunc(paths, func(path string) bool {
			var stat unix.Stat_t
			return unix.Stat(path, &stat) != nil || !slices.Contains(inodes, stat.Ino)
		})
		if len(inside) == 0 {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	return inside
}

func inode(tb testing.TB, path string) uint64 {
	tb.Helper()
	var stat unix.Stat_t
	if err := unix.Stat(path, &stat); err != nil {
		tb.Fatal(err)
	}
	return stat.Ino
}

func lines(tb testing.TB, path string) []string {
	tb.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		tb.Fatal(err)
	}
	return strings.Split(string(text), "\n")
}
