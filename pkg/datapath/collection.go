package datapath

import (
	"cmp"
	"maps"
	"runtime"
	"slices"
	"sync"

	"github.com/cilium/ebpf"
	"golang.org/x/sync/errgroup"
)

// loadMaps makes the maps of the object, but for those that it shares.
func (o *object) loadMaps(shared map[string]*ebpf.Map) (*ebpf.Collection, error) {
	spec := *o.spec
	spec.Programs = nil
	return ebpf.NewCollectionWithOptions(&spec, ebpf.CollectionOptions{MapReplacements: shared})
}

// loadPrograms loads the programs of the object, which work on these maps. What
// takes long is the kernel's verifier, so every CPU has some of them verified.
func (o *object) loadPrograms(on map[string]*ebpf.Map) (programSet, error) {
	var (
		mu     sync.Mutex
		loaded = programSet{}
		group  errgroup.Group
	)
	for _, share := range o.shares(runtime.GOMAXPROCS(0)) {
		group.Go(func() error {
			c, err := ebpf.NewCollectionWithOptions(o.only(slices.Values(share)).spec, ebpf.CollectionOptions{MapReplacements: on})
			if err != nil {
				return err
			}
			mu.Lock()
			maps.Copy(loaded, c.Programs)
			mu.Unlock()
			c.Programs = nil
			c.Close()
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		loaded.Close()
		return nil, err
	}
	return loaded, nil
}

// shares deals out the programs to at most n lists, the largest first and each to
// the one that has the least until then.
func (o *object) shares(n int) [][]string {
	names := slices.SortedFunc(maps.Keys(o.spec.Programs), func(a, b string) int {
		return cmp.Or(cmp.Compare(len(o.spec.Programs[b].Instructions), len(o.spec.Programs[a].Instructions)), cmp.Compare(a, b))
	})
	shares := make([][]string, min(n, len(names)))
	instructions := make([]int, len(shares))
	for _, name := range names {
		i := slices.Index(instructions, slices.Min(instructions))
		shares[i] = append(shares[i], name)
		instructions[i] += len(o.spec.Programs[name].Instructions)
	}
	return shares
}
