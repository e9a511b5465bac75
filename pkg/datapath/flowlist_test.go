package datapath

import (
	"testing"

	"github.com/cilium/ebpf/btf"
)

// What the list says of flags is what the programs mean by them.
func TestFlagsOfFlowsAreThoseOfTheObject(t *testing.T) {
	spec, err := loadHeadgate()
	if err != nil {
		t.Fatal(err)
	}
	var enum *btf.Enum
	if err := spec.Types.TypeByName("flow_flag", &enum); err != nil {
		t.Fatal(err)
	}
	want := map[string]uint64{"FLOW_CLOSING": flagClosing, "FLOW_REFUSED": flagRefused, "FLOW_BRIEF": flagBrief, "FLOW_BROKEN": flagBroken}
	for _, v := range enum.Values {
		if w, ok := want[v.Name]; ok && w != v.Value {
			t.Errorf("%s is %d, the list has %d", v.Name, v.Value, w)
		}
		delete(want, v.Name)
	}
	if len(want) > 0 {
		t.Errorf("the object has no %v", want)
	}
}
