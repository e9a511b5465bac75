package datapath

import (
	"fmt"
	"maps"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
)

// iterators are programs that go through sockets, or through what these keep, ready
// to run.
type iterators []*link.Iter

// newIterators loads programs on the maps in force, with these constants: each by its name,
// with the map that it goes through or "" for the sockets of a network namespace. An
// older object may lack some.
func (d *Datapath) newIterators(programs map[string]string, constants map[string]any) (out iterators, err error) {
	o := d.object.only(maps.Keys(programs))
	if err := o.grow(d.maps.sizes()); err != nil {
		return nil, err
	}
	return d.maps.newIterators(o, programs, constants)
}

// newIterators does so with an object that has these programs, and is as large as the maps.
func (s *mapSet) newIterators(o *object, programs map[string]string, constants map[string]any) (iterators, error) {
	for name, value := range constants {
		if err := o.spec.Variables[name].Set(value); err != nil {
			return nil, fmt.Errorf("set load-time constant %s: %w", name, err)
		}
	}
	c, err := ebpf.NewCollectionWithOptions(o.spec, ebpf.CollectionOptions{MapReplacements: s.byName})
	if err != nil {
		return nil, fmt.Errorf("load the programs that go through sockets: %w", err)
	}
	defer c.Close()
	return attachIterators(c.Programs, func(name string) *ebpf.Map { return s.byName[programs[name]] })
}

// attachIterators has programs ready to run, each through a map, or nil for the sockets of a
// network namespace.
func attachIterators(programs map[string]*ebpf.Program, through func(name string) *ebpf.Map) (out iterators, err error) {
	for name, p := range programs {
		it, err := link.AttachIter(link.IterOptions{Program: p, Map: through(name)})
		if err != nil {
			out.Close()
			return nil, fmt.Errorf("attach %s: %w", name, err)
		}
		out = append(out, it)
	}
	return out, nil
}

func (i iterators) Close() {
	for _, it := range i {
		it.Close()
	}
}
