package datapath

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// Pins returns how many programs, links and maps are pinned below root.
func Pins(root string) (n int, err error) {
	for _, dir := range append(unfinished(root), filepath.Join(root, "links"), filepath.Join(root, "maps")) {
		pins, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return n, err
		}
		n += len(pins)
	}
	return n, nil
}

// Cleanup takes everything below root out of force and removes it. It returns
// ErrBusy while an agent runs.
func Cleanup(root string) error {
	if !exists(root) {
		return nil
	}
	if err := checkRoot(root); err != nil {
		return err
	}
	f, err := lock(root)
	if err != nil {
		return err
	}
	defer f.Close()
	// First what sends clients to backends, so that nobody sees a backend as
	// its peer.
	for _, h := range slices.Backward(slices.Concat(keepers, tracers, watchers, makers)) {
		if err := detach(filepath.Join(root, "links", h.program)); err != nil {
			return err
		}
	}
	if err := dropFilters(func(uint32, string) bool { return false }); err != nil {
		return err
	}
	everything := func(string) bool { return false }
	if err := detachAll(filepath.Join(root, "links"), everything); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return os.RemoveAll(root)
}
