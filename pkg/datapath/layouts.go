package datapath

import (
	"bytes"
	"fmt"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
)

// builtInTypes are the types of the object that is built in. Who only reads maps needs
// no more of it, and reading these takes a hundredth of the time.
var builtInTypes = sync.OnceValues(func() (*btf.Spec, error) {
	types, err := btf.LoadSpecFromReader(bytes.NewReader(builtIn(compressed)))
	if err != nil {
		return nil, fmt.Errorf("read the types of the BPF object: %w", err)
	}
	return types, nil
})

// mapSpecs returns how the maps of an object are laid out, by name and without their
// sizes.
func mapSpecs(types *btf.Spec) (map[string]*ebpf.MapSpec, error) {
	var section *btf.Datasec
	if err := types.TypeByName(".maps", &section); err != nil {
		return nil, fmt.Errorf("read the maps of the BPF object: %w", err)
	}
	out := map[string]*ebpf.MapSpec{}
	for _, v := range section.Vars {
		variable, ok := v.Type.(*btf.Var)
		if !ok {
			continue
		}
		if definition, ok := btf.UnderlyingType(variable.Type).(*btf.Struct); ok {
			out[variable.Name] = mapSpec(variable.Name, definition)
		}
	}
	return out, nil
}

// mapSpec reads the definition of a map, as libbpf has it: each member is a pointer, to
// a type or to an array with as many elements as the number that is meant.
func mapSpec(name string, definition *btf.Struct) *ebpf.MapSpec {
	out := &ebpf.MapSpec{Name: name}
	for _, m := range definition.Members {
		pointer, ok := m.Type.(*btf.Pointer)
		if !ok {
			continue
		}
		var number uint32
		if array, ok := pointer.Target.(*btf.Array); ok {
			number = array.Nelems
		}
		switch m.Name {
		case "type":
			out.Type = ebpf.MapType(number)
		case "map_flags":
			out.Flags = number
		case "key":
			out.Key, out.KeySize = pointer.Target, uint32(sizeOf(pointer.Target))
		case "value":
			out.Value, out.ValueSize = pointer.Target, uint32(sizeOf(pointer.Target))
		}
	}
	return out
}
