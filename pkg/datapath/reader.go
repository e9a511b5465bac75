package datapath

import (
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/plan"
)

// ErrNotLoaded says that nothing is in force where it was looked for.
var ErrNotLoaded = errors.New("headgate is not loaded")

// Reader reads what is in force while programs and an agent write it. It reads the
// maps that were in force when it was made, also after larger ones took their place:
// those are for the next Reader. A Reader is for one goroutine, and is to be closed.
type Reader struct {
	root string
	maps *mapSet
	link func(pin string) (*link.Info, error)

	services *glance[headgateService]
	backends *glance[headgateBackend]
	owners   *flowOwners // nil until they are asked for
}

func newReader(root string, maps *mapSet, link func(pin string) (*link.Info, error)) *Reader {
	return &Reader{root: root, maps: maps, link: link, services: newGlance[headgateService](maps.services.m), backends: newGlance[headgateBackend](maps.backends.m)}
}

// Inspect returns a reader of what is pinned below root, whether or not an agent
// runs. It returns ErrNotLoaded if there is nothing.
func Inspect(root string) (*Reader, error) {
	types, err := builtInTypes()
	if err != nil {
		return nil, err
	}
	specs, err := mapSpecs(types)
	if err != nil {
		return nil, err
	}
	maps, err := openInForce(filepath.Join(root, "maps"), specs)
	if err != nil {
		return nil, err
	}
	if maps == nil {
		return nil, fmt.Errorf("%w: nothing is pinned below %s; start headgate agent, or name another --bpf-root", ErrNotLoaded, root)
	}
	if maps.about == nil {
		maps.Close()
		return nil, fmt.Errorf("the maps below %s were made by another version: use the headgate that made them", root)
	}
	return newReader(root, maps, func(pin string) (*link.Info, error) { return pinnedLink(root, pin) }), nil
}

// openInForce opens the maps in a directory that an agent may replace at any moment: some would be
// of one set, and some of the next, which has others of another size.
func openInForce(dir string, specs map[string]*ebpf.MapSpec) (*mapSet, error) {
	for {
		before, _ := os.Stat(dir)
		s, err := openMaps(dir, specs, false)
		if after, _ := os.Stat(dir); os.SameFile(before, after) || before == nil && after == nil {
			return s, err
		}
		s.Close()
	}
}

// pinnedLink returns what the kernel says of a pinned link.
func pinnedLink(root, pin string) (*link.Info, error) {
	l, err := link.LoadPinnedLink(filepath.Join(root, "links", pin), nil)
	if err != nil {
		return nil, err
	}
	defer l.Close()
	return l.Info()
}

// Reader returns a reader of what this process has put in force, or has found in
// force: it opens nothing. Unlike most calls this one may be made while another is
// under way. It returns ErrNotLoaded if there is nothing yet.
func (d *Datapath) Reader() (*Reader, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.inForce == nil {
		return nil, fmt.Errorf("%w: no programs are in force yet", ErrNotLoaded)
	}
	return newReader(d.cfg.Root, d.inForce.share(), d.heldLink), nil
}

// heldLink returns what the kernel says of a link that this process holds.
func (d *Datapath) heldLink(pin string) (*link.Info, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	l := d.held.links[pin]
	if l == nil {
		return nil, fmt.Errorf("link %s: %w", pin, os.ErrNotExist)
	}
	return l.Info()
}

// publish has readers read these maps from now on.
func (d *Datapath) publish(maps *mapSet) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.inForce.Close()
	d.inForce = maps.share()
}

// Close lets go of the maps.
func (r *Reader) Close() {
	r.services.Close()
	r.backends.Close()
	r.maps.Close()
}

// Rest lets go of memory until more is read.
func (r *Reader) Rest() {
	r.services.rest()
	r.backends.rest()
}

// failed is why maps could not be read: they then seem empty, which Look says.
func (r *Reader) failed() error { return errors.Join(r.services.failed, r.backends.failed) }

// contradiction is an error of maps that do not belong together: they hold nonsense,
// or one of them was replaced by a larger one while another was read.
type contradiction struct{ error }

func (c contradiction) Unwrap() error { return c.error }

// Look calls do with a reader that open returns. It does so once more where maps
// contradicted each other, which they do if they grew meanwhile.
func Look(open func() (*Reader, error), do func(*Reader) error) error {
	err := look(open, do)
	if errors.As(err, new(contradiction)) {
		return look(open, do)
	}
	return err
}

func look(open func() (*Reader, error), do func(*Reader) error) error {
	r, err := open()
	if err != nil {
		return err
	}
	defer r.Close()
	return errors.Join(do(r), r.failed())
}

// Node returns the name of this node.
func (r *Reader) Node() string { return decodeString(r.maps.about.at(0).Node[:]) }

// Version returns that of the agent which loaded what is in force, or adopted it last.
func (r *Reader) Version() string { return decodeString(r.maps.about.at(0).Version[:]) }

// Content returns everything that the agent writes, at the cost of reading it all.
func (r *Reader) Content() (plan.Content, error) { return r.maps.content() }

// Frontend finds what stands behind an address, false for nothing. Former frontends are left out.
func (r *Reader) Frontend(at lb.AddrPort) (plan.Frontend, bool) {
	key := encodeAddrPort(at)
	for place := range r.maps.frontends.len {
		if f := *r.maps.frontends.at(place); f.At == key {
			found := decodeFrontend(f, *r.maps.fallbacks.at(place))
			return found, !found.Former
		}
	}
	return plan.Frontend{}, false
}

// Frontends calls do with every frontend, in no order, until it returns an error. Former frontends are left out.
func (r *Reader) Frontends(do func(lb.AddrPort, plan.Frontend) error) error {
	return r.maps.eachFrontend(func(at lb.AddrPort, f plan.Frontend) error {
		if f.Former {
			return nil
		}
		return do(at, f)
	})
}

// Slots returns the backend IDs of a table, slot by slot.
func (r *Reader) Slots(t plan.Table) ([]uint32, error) {
	ids, err := r.maps.readTable(t)
	if err != nil {
		return nil, fmt.Errorf("table %s, %w", t, err)
	}
	return ids, nil
}

// Service returns the Service port with an ID; the zero Service for none.
func (r *Reader) Service(id uint32) (plan.Service, error) {
	if id >= r.services.len {
		return plan.Service{}, nil
	}
	return r.maps.service(r.services.at(id), id)
}

// Services returns the IDs of all Service ports.
func (r *Reader) Services() (iter.Seq[uint32], error) {
	return func(yield func(uint32) bool) {
		for id := uint32(1); id < r.services.len; id++ {
			if isNamed(r.services.at(id)) && !yield(id) {
				return
			}
		}
	}, r.services.failed
}

// SourceRanges returns the prefixes from which filtered frontends may be used.
func (r *Reader) SourceRanges() (map[plan.SourceRange]bool, error) {
	out := map[plan.SourceRange]bool{}
	return out, r.maps.readSourceRanges(out)
}
