package datapath

import (
	"testing"

	"github.com/cilium/ebpf/btf"
	"github.com/google/go-cmp/cmp"
)

// A frontend of an object in which its views are members of their own comes along
// into the one where they are an array.
func TestMembersThatHadOtherNamesComeAlong(t *testing.T) {
	word := &btf.Int{Name: "__u64", Size: 8}
	array := func(n uint32) *btf.Array { return &btf.Array{Type: word, Nelems: n} }
	was := &btf.Struct{Name: "frontend", Size: 40, Members: []btf.Member{
		{Name: "internal", Type: word}, {Name: "flags", Type: word, Offset: 64},
		{Name: "external", Type: word, Offset: 128}, {Name: "wider", Type: array(2), Offset: 192},
	}}
	now := &btf.Struct{Name: "frontend", Size: 48, Members: []btf.Member{
		{Name: "new", Type: word}, {Name: "views", Type: array(4), Offset: 64}, {Name: "flags", Type: word, Offset: 320},
	}}
	old := make([]byte, was.Size)
	for i := range old {
		old[i] = byte('a' + i/8)
	}
	want := "\x00\x00\x00\x00\x00\x00\x00\x00" + "aaaaaaaa" + "cccccccc" + "dddddddd" + "eeeeeeee" + "bbbbbbbb"
	if diff := cmp.Diff(want, string(apply(moveType(nil, was, now, 0, 0), old, int(now.Size)))); diff != "" {
		t.Errorf("the frontend (-want +got):\n%s", diff)
	}
	// What came along once is laid out alike from then on.
	if diff := cmp.Diff(string(old), string(apply(moveType(nil, was, was, 0, 0), old, int(was.Size)))); diff != "" {
		t.Errorf("the same layout (-want +got):\n%s", diff)
	}
}
