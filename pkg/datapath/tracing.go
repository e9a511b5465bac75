package datapath

import (
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
)

// tracepoints are those that the tracers attach to.
var tracepoints = []string{"tcp_retransmit_skb", "inet_sk_error_report", "tcp_destroy_sock"}

// traced says whether programs at tracepoints note connections that fail.
func (c Config) traced() bool { return !c.SockOps && mayTrace() }

// mayTrace says whether the kernel lets programs be attached to the tracepoints, and
// read what these are about.
var mayTrace = sync.OnceValue(func() bool {
	if lockedDown() {
		return false
	}
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "may_trace", Type: ebpf.RawTracepoint,
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()},
	})
	if err != nil {
		return false
	}
	defer p.Close()
	for _, name := range tracepoints {
		l, err := link.AttachRawTracepoint(link.RawTracepointOptions{Name: name, Program: p})
		if err != nil {
			return false
		}
		l.Close()
	}
	return true
})
