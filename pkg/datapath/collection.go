package datapath

import (
	"cmp"
	"errors"
	"io/fs"
	"maps"
	"os"
	"runtime"
	"slices"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/headgate/headgate/pkg/netdev"
)

// loadMaps makes the maps of the object, but for those that it shares.
func (o *object) loadMaps(shared map[string]*ebpf.Map) (*ebpf.Collection, error) {
	spec := *o.spec
	spec.Programs = nil
	return ebpf.NewCollectionWithOptions(&spec, ebpf.CollectionOptions{MapReplacements: shared})
}

// verifiedAtOnce is how many programs are verified at once, if there are so many CPUs: the largest takes as long as
// all others do then.
const verifiedAtOnce = 4

// loadPrograms loads programs of the object, which work on these maps. What takes long is
// the kernel's verifier, so every CPU has one verified at a time. Each goes to keep, which may be nil, once it is loaded.
func (o *object) loadPrograms(names []string, on *mapSet, keep func(name string, p *ebpf.Program) error) (programSet, error) {
	if len(names) == 0 {
		return programSet{}, nil
	}
	o = o.only(slices.Values(names))
	if err := o.fit(on); err != nil {
		return nil, err
	}
	all, err := o.loadMaps(on.byName) // and that of the constants
	if err != nil {
		return nil, explainLoad(err)
	}
	defer all.Close()
	var (
		mu     sync.Mutex
		loaded = programSet{}
		group  errgroup.Group
		next   = make(chan string, len(names))
	)
	for _, name := range o.largestFirst(names) {
		next <- name
	}
	close(next)
	for range min(runtime.GOMAXPROCS(0), verifiedAtOnce) {
		group.Go(func() error {
			// The kernel's types are read once, but by each for itself: of types of modules those that they refer to
			// in the kernel's are read without a lock.
			opts := ebpf.CollectionOptions{MapReplacements: all.Maps, Cache: btf.NewCache()}
			for name := range next {
				c, err := ebpf.NewCollectionWithOptions(o.only(slices.Values([]string{name})).spec, opts)
				if err != nil {
					return err
				}
				mu.Lock()
				maps.Copy(loaded, c.Programs)
				mu.Unlock()
				if keep != nil {
					err = keep(name, c.Programs[name])
				}
				c.Programs = nil
				c.Close()
				if err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		loaded.Close()
		return nil, refusal(err)
	}
	return loaded, nil
}

// programsToAttach returns the programs that Attach puts in force: those that are prepared, and
// loads the others. Of those of devices these are the ones that nearly every node needs, and
// those that are in force already.
func (d *Datapath) programsToAttach() (programSet, error) {
	names, err := d.wantedPrograms()
	if err != nil {
		return nil, err
	}
	prepared := d.growth.takePrograms(d.maps)
	names = slices.DeleteFunc(names, func(name string) bool { return prepared[name] != nil })
	programs, err := d.load(names)
	if err != nil {
		prepared.Close()
		return nil, err
	}
	maps.Copy(programs, prepared)
	return programs, nil
}

// wantedPrograms returns the names of these programs.
func (d *Datapath) wantedPrograms() ([]string, error) {
	names := append(usualPrograms(d.object.traced), d.cfg.driverPrograms()...)
	pins, err := os.ReadDir(d.path("links"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // before the first Attach there is none
		return nil, err
	}
	for _, pin := range pins {
		if program, _, ok := devicePinOf(pin.Name()); ok {
			names = append(names, program)
		}
	}
	filters, err := netdev.Filters()
	if err != nil {
		return nil, err
	}
	for _, f := range filters {
		names = append(names, f.Name)
	}
	return names, nil
}

// largestFirst sorts those programs that the object has.
func (o *object) largestFirst(names []string) []string {
	has := func(name string) bool { return o.spec.Programs[name] != nil }
	size := func(name string) int { return len(o.spec.Programs[name].Instructions) }
	names = slices.DeleteFunc(slices.Clone(names), func(name string) bool { return !has(name) })
	slices.SortFunc(names, func(a, b string) int { return cmp.Or(cmp.Compare(size(b), size(a)), cmp.Compare(a, b)) })
	return slices.Compact(names)
}

// refusal explains an error from loading programs. It is errors.ErrUnsupported unless the
// next try may succeed.
func refusal(err error) error {
	var errno unix.Errno
	if errors.As(err, &errno) && (errno.Temporary() || errno == unix.ENOMEM) {
		return explainLoad(err)
	}
	return refused{explainLoad(err)}
}

// refused is an error of programs that the kernel does not take.
type refused struct{ error }

func (r refused) Unwrap() []error { return []error{r.error, errors.ErrUnsupported} }
