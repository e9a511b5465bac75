package datapath

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"maps"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// iterators are programs that go through sockets, or through what these keep, ready
// to run.
type iterators []*link.Iter

// newIterators loads programs on the maps in force, with these constants: each by its name,
// with the map that it goes through or "" for the sockets of a network namespace. An
// older object may lack some.
func (d *Datapath) newIterators(programs map[string]string, constants map[string]any) (out iterators, err error) {
	o := d.object.only(maps.Keys(programs))
	if err := o.fit(d.maps); err != nil {
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

// round is programs that go through the sockets of network namespaces that have slots, and through what sockets
// keep themselves: loaded when there is something to go through, once for the maps in force. The zero value has
// none.
type round struct {
	slots, stored iterators
}

// Close unloads them.
func (r *round) Close() {
	r.slots.Close()
	r.stored.Close()
	*r = round{}
}

// run goes through the sockets of some namespaces, by their cookies, and through the entries that are stored, of
// which there are so many. Programs are as in newIterators.
func (r *round) run(d *Datapath, slotPrograms, storedPrograms map[string]string, namespaces map[uint64]bool, stored uint64) error {
	var ofSlots, ofStored error
	if len(namespaces) > 0 {
		if ofSlots = d.loadOnce(&r.slots, slotPrograms); ofSlots == nil {
			ofSlots = EachNamespace(func(_ string, cookie uint64) error {
				if !namespaces[cookie] {
					return nil
				}
				return runIterators(r.slots, drained)
			})
		}
	}
	if stored > 0 {
		if ofStored = d.loadOnce(&r.stored, storedPrograms); ofStored == nil {
			ofStored = runIterators(r.stored, drained)
		}
	}
	return errors.Join(ofSlots, ofStored)
}

// loadOnce loads programs that are not loaded yet.
func (d *Datapath) loadOnce(loaded *iterators, programs map[string]string) (err error) {
	if *loaded == nil {
		*loaded, err = d.newIterators(programs, nil)
	}
	return err
}

// eachRecord calls do after it has read a record that a program writes, one after the other,
// until do fails.
func eachRecord(from io.Reader, record []byte, do func() error) error {
	r := bufio.NewReaderSize(patient{from}, 1<<16)
	for {
		switch _, err := io.ReadFull(r, record); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("go through the sockets: %w", err)
		}
		if err := do(); err != nil {
			return err
		}
	}
}

// bytesOf is the memory of a record.
func bytesOf[T any](record *T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(record)), unsafe.Sizeof(*record))
}

// patient reads on where the kernel has gone through a million objects and found nothing to write.
type patient struct{ io.Reader }

func (p patient) Read(b []byte) (n int, err error) {
	for {
		if n, err = p.Reader.Read(b); n > 0 || !errors.Is(err, unix.EAGAIN) {
			return n, err
		}
	}
}
