package testenv

import (
	"errors"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"
)

// NeedStorageIterators skips a test that goes through what sockets keep themselves where the
// kernel lets nobody do so: some builds refuse every iterator of the elements of maps, whoever
// asks. Headgate says so then, and recounts nothing while there are such entries.
func NeedStorageIterators(tb testing.TB) {
	tb.Helper()
	Need(tb)
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "nothing", Type: ebpf.Tracing, AttachType: ebpf.AttachTraceIter, AttachTo: "bpf_sk_storage_map", License: "GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()},
	})
	switch {
	case err == nil:
		p.Close()
	case errors.Is(err, unix.EPERM):
		tb.Skip("this kernel refuses all iterators of socket storage, those that do nothing, too")
	default:
		tb.Fatal(err)
	}
}
