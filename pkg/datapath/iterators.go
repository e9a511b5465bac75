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
	for name, value := range constants {
		if err := o.spec.Variables[name].Set(value); err != nil {
			return nil, fmt.Errorf("set load-time constant %s: %w", name, err)
		}
	}
	if err := o.grow(d.maps.sizes()); err != nil {
		return nil, err
	}
	c, err := ebpf.NewCollectionWithOptions(o.spec, ebpf.CollectionOptions{MapReplacements: d.maps.byName})
	if err != nil {
		return nil, fmt.Errorf("load the programs that go through sockets: %w", err)
	}
	defer c.Close()
	for name, p := range c.Programs {
		it, err := link.AttachIter(link.IterOptions{Program: p, Map: d.maps.byName[programs[name]]})
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
