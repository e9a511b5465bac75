package datapath

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
)

// A first start takes the kernel's verifier most of its time, and until its end nothing is in force. So the maps and each
// program that is verified are pinned in the directory first. The next start goes on from there if this one is cut off.

// openFirst opens the maps of a first start that was cut off: nil if there are none of this object, or if programs in force
// work on others.
func (d *Datapath) openFirst() (*mapSet, error) {
	first, err := openMaps(d.path("first"), d.object.spec.Maps, true)
	if err != nil {
		return nil, err
	}
	if !first.matches(d.object) || !linksUseOnly(d.path("links"), first.ids()) {
		first.Close()
		return nil, nil
	}
	return first, nil
}

// linksUseOnly says whether the program of every pinned link works only on maps with these IDs.
func linksUseOnly(dir string, ids []ebpf.MapID) bool {
	pins, err := os.ReadDir(dir)
	if err != nil {
		return errors.Is(err, fs.ErrNotExist)
	}
	return !slices.ContainsFunc(pins, func(pin os.DirEntry) bool {
		l, err := link.LoadPinnedLink(filepath.Join(dir, pin.Name()), nil)
		if err != nil {
			return true
		}
		defer l.Close()
		return !linkUses(l, ids)
	})
}

// load loads programs that work on the maps of this process. While nothing is in force it keeps them for the next start,
// and takes those that an earlier one has kept. These have a clock, and a time of the last flood, of their own.
func (d *Datapath) load(names []string) (programSet, error) {
	if !d.fresh {
		return d.object.loadPrograms(names, d.maps, nil)
	}
	dir := d.path("first")
	if d.kept != d.maps {
		if err := d.maps.pin(dir); err != nil {
			return nil, err
		}
		d.kept = d.maps
	}
	kept, err := openPrograms(dir, names)
	if err != nil {
		return nil, err
	}
	names = slices.DeleteFunc(slices.Clone(names), func(name string) bool { return kept[name] != nil })
	loaded, err := d.object.loadPrograms(names, d.maps, func(name string, p *ebpf.Program) error { return pinProgram(p, dir, name) })
	if err != nil {
		kept.Close()
		return nil, err
	}
	maps.Copy(loaded, kept)
	return loaded, nil
}

// openPrograms opens those of the programs that are pinned in a directory.
func openPrograms(dir string, names []string) (programSet, error) {
	out := programSet{}
	for _, name := range names {
		p, err := ebpf.LoadPinnedProgram(filepath.Join(dir, name), nil)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			out.Close()
			return nil, fmt.Errorf("open pinned program %s: %w", name, err)
		}
		out[name] = p
	}
	return out, nil
}
