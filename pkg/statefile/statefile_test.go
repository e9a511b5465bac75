package statefile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
)

func TestAFileIsReplacedAsAWhole(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	path := filepath.Join(dir, "file")
	for body, replace := range map[string]func(string, []byte) error{"one": Replace, "two": Replace} {
		if err := replace(path, []byte(body)); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != body {
			t.Errorf("got %q, %v; want %q", got, err, body)
		}
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("the directory has %v, %v", entries, err)
	}
	for _, of := range []string{dir, path} {
		if info, err := os.Stat(of); err != nil || info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s: %v, %v; want nothing for others", of, info.Mode(), err)
		}
	}
}

func TestOneOfManyMakesAFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a", "file")
	var all sync.WaitGroup
	var made atomic.Int32
	for i := range 20 {
		all.Go(func() {
			switch err := Make(path, []byte(strconv.Itoa(100+i))); {
			case err == nil:
				made.Add(1)
			case !errors.Is(err, fs.ErrExist):
				t.Error(err)
			}
		})
	}
	all.Wait()
	if got, err := os.ReadFile(path); err != nil || len(got) != 3 || made.Load() != 1 {
		t.Errorf("the file has %q, %v; %d say that they made it", got, err, made.Load())
	}
	if entries, err := os.ReadDir(filepath.Dir(path)); err != nil || len(entries) != 1 {
		t.Errorf("the directory has %v, %v", entries, err)
	}
}

func TestWhatCannotBeReplacedStays(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "file"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := Replace(filepath.Join(dir, "file"), nil); err == nil {
		t.Error("a directory was replaced by a file")
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("left behind: %v, %v", entries, err)
	}
}
