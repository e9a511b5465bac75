package fences

import (
	"fmt"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
)

// Linux up to 6.4 rounds what each function takes of the stack up to 32 bytes, and
// allows a chain of calls 512 in all. Later kernels are more generous, so that
// what loads on the machine of a developer need not load on the oldest one.
const (
	stackRound = 32
	stackMost  = 512
)

// frames is the functions of a program with what they take and whom they call.
type frames struct {
	bytes map[string]int
	calls map[string][]string
}

func TestProgramsFitTheStackOfTheOldestKernel(t *testing.T) {
	spec, err := ebpf.LoadCollectionSpec("../../pkg/datapath/headgate_bpfel.o")
	if err != nil {
		t.Fatal(err)
	}
	for name, program := range spec.Programs {
		f := readFrames(program.Instructions)
		if len(f.bytes) == 0 {
			t.Errorf("%s: no function was found", name)
		}
		if size, chain := f.deepest(name); size > stackMost {
			t.Errorf("%s: %d bytes of stack, at most %d: %v", name, size, stackMost, chain)
		}
	}
}

// readFrames reads how far below its frame pointer each function reaches.
func readFrames(code asm.Instructions) frames {
	f := frames{map[string]int{}, map[string][]string{}}
	var function string
	points := map[asm.Register]bool{} // to the frame
	for _, ins := range code {
		if s := ins.Symbol(); s != "" {
			function, points = s, map[asm.Register]bool{asm.RFP: true}
			f.bytes[function] = 0
		}
		if ins.IsFunctionReference() {
			f.calls[function] = append(f.calls[function], ins.Reference())
		}
		below := 0
		switch class := ins.OpCode.Class(); {
		case class == asm.LdXClass && ins.Src == asm.RFP, class.IsStore() && ins.Dst == asm.RFP:
			below = -int(ins.Offset)
		case class.IsALU() && ins.OpCode.ALUOp() == asm.Mov:
			points[ins.Dst] = ins.OpCode.Source() == asm.RegSource && ins.Src == asm.RFP
		case class.IsALU() && ins.OpCode.ALUOp() == asm.Add && points[ins.Dst]:
			below, points[ins.Dst] = -int(ins.Constant), false
		}
		f.bytes[function] = max(f.bytes[function], below)
	}
	return f
}

// deepest returns the chain of calls from a function that takes most, and how much.
func (f frames) deepest(function string) (size int, chain []string) {
	for _, called := range f.calls[function] {
		if s, c := f.deepest(called); s > size {
			size, chain = s, c
		}
	}
	own := f.bytes[function]
	return size + (max(own, 1)+stackRound-1)/stackRound*stackRound, append([]string{fmt.Sprintf("%s %d", function, own)}, chain...)
}
