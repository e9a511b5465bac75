package datapath

import (
	"sync"

	"github.com/cilium/ebpf/btf"
)

// kernelTracks says whether programs can ask the kernel which connections it tracks. The
// function for that is part of nf_conntrack, mostly a module: without it the kernel tracks
// none.
var kernelTracks = sync.OnceValue(func() bool {
	cache := btf.NewCache()
	module := func() (*btf.Spec, error) { return cache.Module("nf_conntrack") }
	for _, load := range []func() (*btf.Spec, error){cache.Kernel, module} {
		spec, err := load()
		if err != nil {
			continue
		}
		var lookup *btf.Func
		if spec.TypeByName("bpf_skb_ct_lookup", &lookup) == nil {
			return true
		}
	}
	return false
})
