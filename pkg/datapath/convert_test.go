package datapath

import (
	"bytes"
	"testing"

	"github.com/cilium/ebpf/btf"
	"github.com/google/go-cmp/cmp"
)

func structOf(name string, members ...btf.Member) *btf.Struct {
	s := &btf.Struct{Name: name, Members: members}
	for i := range s.Members {
		s.Members[i].Offset = btf.Bits(8 * s.Size)
		s.Size += uint32(sizeOf(s.Members[i].Type))
	}
	return s
}

// A struct is found by its former name, and so are its members, also where these are
// structs of which the members have other places.
func TestStructsThatHadOtherNamesComeAlong(t *testing.T) {
	word := &btf.Int{Name: "__u64", Size: 8}
	a, b := btf.Member{Name: "a", Type: word}, btf.Member{Name: "b", Type: word}
	was := structOf("stored_promises", btf.Member{Name: "promise", Type: &btf.Array{Type: structOf("promise", a, b), Index: word, Nelems: 2}})
	now := structOf("stored_entries", btf.Member{Name: "entry", Type: &btf.Array{Type: structOf("socket_entry", b, a), Index: word, Nelems: 2}})
	builder, err := btf.NewBuilder([]btf.Type{was}, nil)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := builder.Marshal(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	types, err := btf.LoadSpecFromReader(bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	moves, same, err := compareLayouts(types, now, int(was.Size))
	if err != nil || same {
		t.Fatalf("the layouts are the same: %v, %v", same, err)
	}
	if got := string(apply(moves, []byte("aaaaaaaabbbbbbbbAAAAAAAABBBBBBBB"), int(now.Size))); got != "bbbbbbbbaaaaaaaaBBBBBBBBAAAAAAAA" {
		t.Errorf("the list is %s", got)
	}
}

// A frontend of an object in which its views are members of their own, or more of one, comes
// along, and what it falls back to into a struct of its own.
func TestMembersThatHadOtherNamesComeAlong(t *testing.T) {
	word := &btf.Int{Name: "__u64", Size: 8}
	array := func(n uint32) *btf.Array { return &btf.Array{Type: word, Nelems: n} }
	frontend := structOf("frontend", btf.Member{Name: "new", Type: word}, btf.Member{Name: "views", Type: array(2)}, btf.Member{Name: "flags", Type: word})
	fallbacks := structOf("fallbacks", btf.Member{Name: "to", Type: array(2)}, btf.Member{Name: "spill", Type: word})
	for name, was := range map[string]*btf.Struct{
		"apart": structOf("frontend", btf.Member{Name: "internal", Type: word}, btf.Member{Name: "flags", Type: word},
			btf.Member{Name: "external", Type: word}, btf.Member{Name: "wider", Type: array(2)}, btf.Member{Name: "spill", Type: word}),
		"together": structOf("frontend", btf.Member{Name: "flags", Type: word}, btf.Member{Name: "views", Type: array(4)}, btf.Member{Name: "spill", Type: word}),
	} {
		old := map[string]string{"apart": "iiiiiiiiffffffffeeeeeeeezzzzzzzzaaaaaaaassssssss", "together": "ffffffffiiiiiiiieeeeeeeezzzzzzzzaaaaaaaassssssss"}[name]
		for now, want := range map[*btf.Struct]string{
			frontend:  "\x00\x00\x00\x00\x00\x00\x00\x00iiiiiiiieeeeeeeeffffffff",
			fallbacks: "zzzzzzzzaaaaaaaassssssss",
			was:       old, // what came along once is laid out alike from then on
		} {
			if diff := cmp.Diff(want, string(apply(moveType(nil, was, now, 0, 0), []byte(old), int(now.Size)))); diff != "" {
				t.Errorf("%s %s (-want +got):\n%s", now.Name, name, diff)
			}
		}
	}
}

func TestWhatWasOneIsTheFirstOfSeveral(t *testing.T) {
	word := &btf.Int{Name: "__u64", Size: 8}
	was := structOf("slot_change", btf.Member{Name: "from", Type: word}, btf.Member{Name: "to", Type: word})
	now := structOf("slot_change", btf.Member{Name: "to", Type: word}, btf.Member{Name: "was", Type: &btf.Array{Type: word, Nelems: 2}})
	if got := string(apply(moveType(nil, was, now, 0, 0), []byte("ffffffffoooooooo"), int(now.Size))); got != "ooooooooffffffff\x00\x00\x00\x00\x00\x00\x00\x00" {
		t.Errorf("a change of a slot is %q", got)
	}
}
