package lb

import (
	"runtime"
	"sync"
	"sync/atomic"
)

// selected is what is found for a Service. To find it changes nothing but the cache of that Service, so
// that it can be done for many at once.
type selected struct {
	known     bool
	frontends []Frontend
	cache     *selectionCache // nil for none
	oversized *Problem        // nil for none
}

// find looks for the frontends of a Service.
func (st *State) find(name ServiceName) selected {
	svc, known := st.services[name]
	if !known {
		return selected{}
	}
	cache, parts := st.caches[name], []part(nil)
	switch cached := !st.Recalls(name); {
	case cached && cache != nil && cache.apply(svc, st.node, st.drained):
		parts = cache.parts
	default:
		parts = partsOf(svc, st.slicesOf(name), st.node, st.drained, st.cacheFrom)
		if cache = nil; cached {
			cache = newCache(svc, st.node, parts)
		}
	}
	return selected{known: true, frontends: st.grantedOf(svc, frontendsOf(st.granted(svc), parts)), cache: cache, oversized: oversize(svc, parts)}
}

// keep keeps what was found for a Service, and returns its frontends.
func (st *State) keep(name ServiceName, f selected) []Frontend {
	if !f.known {
		return nil
	}
	if f.cache != nil {
		st.caches[name] = f.cache
	} else {
		delete(st.caches, name)
	}
	if f.oversized != nil {
		st.oversized[name] = *f.oversized
	} else {
		delete(st.oversized, name)
	}
	return f.frontends
}

// atATime is how many Services are looked for by one goroutine before it takes others.
const atATime = 64

// FrontendsOfEach returns what Frontends does of each Service. Of many all CPUs look for some.
func (st *State) FrontendsOfEach(names []ServiceName) [][]Frontend {
	all := make([]selected, len(names))
	var taken atomic.Int64
	look := func() {
		for {
			end := int(taken.Add(atATime))
			begin := end - atATime
			if begin >= len(names) {
				return
			}
			for i := begin; i < min(end, len(names)); i++ {
				all[i] = st.find(names[i])
			}
		}
	}
	var others sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), len(names)/atATime) - 1 {
		others.Go(look)
	}
	look()
	others.Wait()
	out := make([][]Frontend, len(names))
	for i, name := range names {
		out[i] = st.keep(name, all[i])
	}
	return out
}
