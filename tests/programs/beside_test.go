package programs

import (
	"fmt"
	"net"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
)

// devices are those of the node that packets of the paths take.
var devices = []string{"hg-router", "hg-client", "hg-server"}

// beside is the echo server of systemd, with something else on the devices of the node.
func beside(name string, before, after func(r *rig), programs ...string) program {
	p := socketActivation
	p.name, p.before, p.after, p.needs = name, before, after, append(programs, p.needs...)
	return p
}

// Other people's tcx programs come first and last: some before there is an agent, some once it has attached its own.
var (
	tcxMarks = beside("tcx programs that mark and go on", func(r *rig) { r.attach(link.Tail(), tcxNext) }, func(r *rig) {
		r.attach(link.Head(), tcxNext)
		r.attach(link.Tail(), tcxNext)
	})
	tcxPasses     = besideTCX("tcx programs that mark and pass, attached before", func(r *rig) { r.attach(link.Tail(), tcxPass) }, nil)
	tcxPassesLast = besideTCX("tcx programs that mark and pass, attached last", nil, func(r *rig) { r.attach(link.Tail(), tcxPass) })
)

// besideTCX is beside without --filters.
func besideTCX(name string, before, after func(r *rig)) program {
	p := beside(name, before, after)
	p.tcxOnly = true
	return p
}

// Verdicts of tcx: later programs see the packet, or do not.
const (
	tcxNext = -1
	tcxPass = 0
)

// attach attaches a program that marks packets to both directions of all devices, for as long as a proxy balances.
func (r *rig) attach(where link.Anchor, verdict int32) {
	r.t.Helper()
	const mark = 8 // where it is in a packet
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: "others", Type: ebpf.SchedCLS, License: "GPL", Instructions: asm.Instructions{
		asm.LoadMem(asm.R2, asm.R1, mark, asm.Word), asm.Or.Imm(asm.R2, 0x800), asm.StoreMem(asm.R1, mark, asm.R2, asm.Word),
		asm.Mov.Imm(asm.R0, verdict), asm.Return(),
	}})
	if err != nil {
		r.t.Fatal(err)
	}
	defer p.Close()
	err = r.topology.Namespace("node-a").Do(func() error {
		for _, name := range devices {
			device, err := net.InterfaceByName(name)
			if err != nil {
				return err
			}
			for _, at := range []ebpf.AttachType{ebpf.AttachTCXIngress, ebpf.AttachTCXEgress} {
				l, err := link.AttachTCX(link.TCXOptions{Interface: device.Index, Program: p, Attach: at, Anchor: where})
				if err != nil {
					return fmt.Errorf("attach to %s: %w", name, err)
				}
				r.attached = append(r.attached, l)
			}
		}
		return nil
	})
	if err != nil {
		r.t.Fatal(err)
	}
}

// detach detaches what attach has attached.
func (r *rig) detach() {
	for _, l := range r.attached {
		if err := l.Close(); err != nil {
			r.t.Error(err)
		}
	}
	r.attached = nil
}

// shaped devices queue what they send, and police what they receive where the kernel can.
var shaped = beside("queueing disciplines", func(r *rig) {
	for _, device := range devices {
		_ = r.run("node-a", "tc", "qdisc", "del", "dev", device, "root") // of the proxy before
	}
	r.must("node-a", "tc", "qdisc", "add", "dev", "hg-router", "root", "tbf", "rate", "200mbit", "burst", "256kb", "latency", "50ms")
	for _, device := range devices[1:] {
		r.must("node-a", "tc", "qdisc", "add", "dev", device, "root", "handle", "1:", "htb", "default", "1")
		r.must("node-a", "tc", "class", "add", "dev", device, "parent", "1:", "classid", "1:1", "htb", "rate", "200mbit")
	}
}, nil, "tc")

// policed devices drop what is beyond a rate.
var policed = beside("policers", func(r *rig) {
	for _, device := range devices {
		r.must("node-a", "tc", "qdisc", "replace", "dev", device, "clsact")
		if err := r.run("node-a", "tc", "filter", "add", "dev", device, "ingress", "matchall", "action", "police", "rate", "200mbit", "burst", "256k", "conform-exceed", "drop/continue"); err != nil {
			r.t.Skipf("this kernel has no policers (CONFIG_NET_ACT_POLICE, CONFIG_NET_CLS_MATCHALL): %v", err)
		}
	}
}, nil, "tc")
