package fences

import (
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
)

// Linux before 6.2 takes no key of a map from memory that a global function was given:
// it has to be a copy on the stack. Later kernels do, so that what loads on the machine
// of a developer need not load on the oldest one.
func TestKeysAreNotWhatAGlobalFunctionWasGiven(t *testing.T) {
	spec, err := ebpf.LoadCollectionSpec("../../pkg/datapath/headgate_bpfel.o")
	if err != nil {
		t.Fatal(err)
	}
	looked := map[string]bool{}
	for _, program := range spec.Programs {
		var function *btf.Func
		var g given
		for _, ins := range program.Instructions {
			if ins.Symbol() != "" {
				function = btf.FuncMetadata(&ins)
				g = givenTo(function)
			}
			if g.registers[asm.R2] && takesKey(ins) && !looked[function.Name] {
				t.Errorf("%s: a key of a map is memory that the function was given; copy it", function.Name)
			}
			looked[function.Name] = looked[function.Name] || g.registers[asm.R2] && takesKey(ins)
			g.follow(ins)
		}
	}
	if len(looked) < 10 {
		t.Errorf("%d functions were found", len(looked))
	}
}

// takesKey says whether an instruction has the kernel read a key, which is the second
// argument.
func takesKey(ins asm.Instruction) bool {
	if !ins.IsBuiltinCall() {
		return false
	}
	switch asm.BuiltinFunc(ins.Constant) {
	case asm.FnMapLookupElem, asm.FnMapUpdateElem, asm.FnMapDeleteElem:
		return true
	default:
		return false
	}
}

// given is where pointers are to what a function was given.
type given struct {
	registers map[asm.Register]bool
	stack     map[int16]bool // by offset from the frame pointer
}

// givenTo is what registers hold where a function begins. Contexts, which no key is read
// from, count as well; functions that are not global are verified where they are called.
func givenTo(f *btf.Func) given {
	g := given{map[asm.Register]bool{}, map[int16]bool{}}
	if f == nil || f.Linkage != btf.GlobalFunc {
		return g
	}
	for i, p := range f.Type.(*btf.FuncProto).Params {
		_, g.registers[asm.R1+asm.Register(i)] = btf.UnderlyingType(p.Type).(*btf.Pointer)
	}
	return g
}

// follow goes past an instruction, as if none jumped: the compiler keeps a pointer in
// the same place all the while.
func (g given) follow(ins asm.Instruction) {
	switch class := ins.OpCode.Class(); {
	case ins.IsFunctionCall() || ins.IsBuiltinCall() || ins.IsKfuncCall():
		for r := asm.R0; r <= asm.R5; r++ {
			g.registers[r] = false
		}
	case class.IsStore() && ins.Dst == asm.RFP:
		g.stack[ins.Offset] = class == asm.StXClass && g.registers[ins.Src]
	case class == asm.LdXClass:
		g.registers[ins.Dst] = ins.Src == asm.RFP && g.stack[ins.Offset]
	case class == asm.LdClass:
		g.registers[ins.Dst] = false
	case class.IsALU() && ins.OpCode.ALUOp() == asm.Mov:
		g.registers[ins.Dst] = ins.OpCode.Source() == asm.RegSource && g.registers[ins.Src]
	}
}
