package datapath

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// held is what keeps programs in force though their pins are removed: the links
// by the name of their pin, and the programs that are pinned beside the maps. The
// zero value holds nothing.
type held struct {
	links    map[string]link.Link
	programs programSet
}

// Close lets go of everything; what is pinned stays in force.
func (h *held) Close() {
	for _, l := range h.links {
		l.Close()
	}
	h.programs.Close()
	*h = held{}
}

// hold opens the links and programs that are pinned, in place of those that
// were held before.
func (d *Datapath) hold() error {
	entries, err := os.ReadDir(d.path("links"))
	if err != nil {
		return err
	}
	now := held{links: map[string]link.Link{}}
	for _, e := range entries {
		if now.links[e.Name()], err = openUnpinned(filepath.Join(d.path("links"), e.Name())); err != nil {
			delete(now.links, e.Name())
			now.Close()
			return err
		}
	}
	if now.programs, err = openPrograms(d.path("maps"), besideMaps); err != nil {
		now.Close()
		return err
	}
	d.setHeld(now)
	return nil
}

// setHeld lets go of what was held before.
func (d *Datapath) setHeld(now held) {
	d.mu.Lock()
	old := d.held
	d.held = now
	d.mu.Unlock()
	old.Close()
}

// openUnpinned opens a pinned link as one that knows of no pin: it can be pinned
// again where the pin is gone.
func openUnpinned(pin string) (link.Link, error) {
	pinned, err := link.LoadPinnedLink(pin, nil)
	if err != nil {
		return nil, fmt.Errorf("open pinned link %s: %w", pin, err)
	}
	defer pinned.Close()
	info, err := pinned.Info()
	if err != nil {
		return nil, fmt.Errorf("pinned link %s: %w", pin, err)
	}
	return link.NewFromID(info.ID)
}

// repin pins again what is held and lost its pin, and returns whether that was
// anything.
func (d *Datapath) repin() (bool, error) {
	if err := d.relock(); err != nil {
		return false, err
	}
	maps := !d.mapsArePinned()
	if maps {
		if err := d.pinMaps(); err != nil {
			return false, err
		}
	}
	links, err := d.repinLinks()
	return maps || links, err
}

// relock makes the directory of pins and locks it again, and the cgroup, where
// they are not those that were locked: a file system may be mounted over them.
func (d *Datapath) relock() error {
	for i, f := range d.locks {
		if isAt(f, f.Name()) {
			continue
		}
		if f.Name() == d.cfg.Root {
			if err := d.makeRoot(); err != nil {
				return err
			}
		}
		again, err := lock(f.Name())
		if errors.Is(err, fs.ErrNotExist) {
			continue // the cgroup, which is told of where programs attach to it
		}
		if err != nil {
			return err
		}
		f.Close()
		d.locks[i] = again
	}
	return nil
}

// makeRoot makes the directory of pins, in a BPF file system.
func (d *Datapath) makeRoot() error {
	if err := mountBPF(d.cfg.Root); err != nil {
		return err
	}
	if err := checkRoot(d.cfg.Root); err != nil {
		return err
	}
	if err := os.MkdirAll(d.cfg.Root, 0o700); err != nil {
		return fmt.Errorf("make %s: %w", d.cfg.Root, err)
	}
	return nil
}

// isAt says whether an open file is the one at a path.
func isAt(f *os.File, path string) bool {
	open, err := f.Stat()
	if err != nil {
		return false
	}
	there, err := os.Lstat(path)
	return err == nil && os.SameFile(open, there)
}

// pinsSeen is how the directories of pins were when they were looked at last. The zero value
// was never looked at.
type pinsSeen struct {
	maps, links stamp
	rest        bool // they had been so the time before, too
}

// stamp tells a directory apart, and in which state it is.
type stamp struct {
	device, inode uint64
	changed       unix.Timespec
}

func stampOf(dir string) stamp {
	var s unix.Stat_t
	if unix.Stat(dir, &s) != nil {
		return stamp{}
	}
	return stamp{s.Dev, s.Ino, s.Mtim}
}

// repinSeen is repin for who calls it every few seconds: where no pin has come or gone since it
// looked twice, it does not look at each. Twice, since the clock of the file system is coarse.
func (d *Datapath) repinSeen() (repinned bool, err error) {
	before := d.pins
	d.pins = pinsSeen{maps: stampOf(d.path("maps")), links: stampOf(d.path("links"))}
	d.pins.rest = d.pins.maps == before.maps && d.pins.links == before.links && d.pins.maps.inode != 0 && d.pins.links.inode != 0
	if before.rest && d.pins.rest {
		return false, d.relock()
	}
	if repinned, err = d.repin(); err != nil {
		d.pins = pinsSeen{}
	}
	return repinned, err
}

func (d *Datapath) mapsArePinned() bool {
	for name := range d.maps.byName {
		if !exists(filepath.Join(d.path("maps"), name)) {
			return false
		}
	}
	for name := range d.held.programs {
		if !exists(filepath.Join(d.path("maps"), name)) {
			return false
		}
	}
	return true
}

// pinMaps pins the maps, and the programs beside them, anew.
func (d *Datapath) pinMaps() error {
	if err := d.maps.pin(d.path("next")); err != nil {
		return err
	}
	for name := range d.held.programs {
		if err := pinProgram(d.held.programs[name], d.path("next"), name); err != nil {
			return err
		}
	}
	return swapDirs(d.path("next"), d.path("maps"))
}

func (d *Datapath) repinLinks() (any bool, err error) {
	if err := os.MkdirAll(d.path("links"), 0o700); err != nil {
		return false, fmt.Errorf("make %s: %w", d.path("links"), err)
	}
	for name, l := range d.held.links {
		pin := filepath.Join(d.path("links"), name)
		if exists(pin) {
			continue
		}
		if err := l.Pin(pin); err != nil {
			return any, fmt.Errorf("pin link %s: %w", pin, err)
		}
		any = true
		// Pinned as it is now, it would not be pinned here a second time.
		again, err := openUnpinned(pin)
		if err != nil {
			return any, err
		}
		d.mu.Lock()
		d.held.links[name] = again
		d.mu.Unlock()
		l.Close()
	}
	return any, nil
}
