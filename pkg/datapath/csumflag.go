package datapath

import (
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
)

// csumOfIP6 is BPF_F_IPV6 of bpf_l4_csum_replace: the packet is one of IPv6, whose header no
// checksum covers.
const csumOfIP6 = 1 << 7

// ip6CsumFlag returns BPF_F_IPV6 where the kernel knows it, else 0: without, packets of
// devices that sum up whole frames (CHECKSUM_COMPLETE) get a wrong sum. It came with Linux
// 6.16, and with later releases of older lines: so the kernel is asked, by a program that
// changes a checksum by nothing.
var ip6CsumFlag = sync.OnceValue(func() uint64 {
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "knows_ip6_csum", Type: ebpf.SchedCLS,
		Instructions: asm.Instructions{
			asm.Mov.Imm(asm.R2, 16), // where, behind the Ethernet header
			asm.Mov.Imm(asm.R3, 0),
			asm.Mov.Imm(asm.R4, 0),
			asm.Mov.Imm(asm.R5, csumOfIP6),
			asm.FnL4CsumReplace.Call(),
			asm.Return(),
		},
	})
	if err != nil {
		return 0
	}
	defer p.Close()
	if failed, _, err := p.Test(make([]byte, 64)); err != nil || failed != 0 {
		return 0
	}
	return csumOfIP6
})
