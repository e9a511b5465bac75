package network

import (
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
)

// TestTagsAndChecksumsOfDevices has all that comes to the nodes and goes from them
// carry a VLAN tag, where devices that know about tags keep it: beside the packet.
// No node finishes a checksum before it is translated: the router does that behind
// them, and the pods' devices, so that client and pods see each mistake.
func TestTagsAndChecksumsOfDevices(t *testing.T) {
	n := newNetwork(t, false)
	n.router.sumHere("down")
	for _, node := range n.nodes {
		node.sumHere("pod0")
		node.serve()
	}
	n.startAgents()
	push := tagProgram(t, asm.Instructions{ // 7, of 802.1Q; a reset has kept that of its packet
		asm.LoadMem(asm.R2, asm.R1, 20, asm.Word), asm.Mov.Imm(asm.R0, 0), // vlan_present
		asm.JNE.Imm(asm.R2, 0, "done"),
		asm.Mov.Imm(asm.R2, 0x0081), asm.Mov.Imm(asm.R3, 7), asm.FnSkbVlanPush.Call(),
	})
	pop := tagProgram(t, asm.Instructions{asm.FnSkbVlanPop.Call()})
	for _, node := range n.nodes {
		n.router.attach(node.name, push, ebpf.AttachTCXEgress, link.Tail())
		node.attach("eth0", pop, ebpf.AttachTCXIngress, link.Tail()) // behind the agent's
		node.attach("eth0", push, ebpf.AttachTCXEgress, link.Head()) // before the agent's
		n.router.attach(node.name, pop, ebpf.AttachTCXIngress, link.Tail())
	}
	for _, c := range []struct {
		name string
		test func(*testing.T, *network)
	}{
		{"a NodePort of each node leads to each pod", nodePorts},
		{"load-balancer and external IPs lead to the pod", virtualIPs},
		{"a Service without endpoints refuses", refusals},
		{"a megabyte goes both ways", transfers},
		{"datagrams go in fragments", fragments},
		{"every machine on the way is heard of", hops},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, n) })
	}
}

// tagProgram returns a program that does something with the tag of each packet,
// and leaves the rest to others. What it cannot do is fatal to the packet.
func tagProgram(t *testing.T, what asm.Instructions) *ebpf.Program {
	t.Helper()
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "tag", Type: ebpf.SchedCLS, License: "Dual BSD/GPL",
		Instructions: append(what,
			asm.Mov.Reg(asm.R1, asm.R0).WithSymbol("done"), asm.Mov.Imm(asm.R0, -1), // TCX_NEXT
			asm.JEq.Imm(asm.R1, 0, "out"), asm.Mov.Imm(asm.R0, 2), // TCX_DROP
			asm.Return().WithSymbol("out")),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

// attach attaches a program to a device for as long as the test runs.
func (h *host) attach(device string, p *ebpf.Program, at ebpf.AttachType, where link.Anchor) {
	h.tb.Helper()
	h.do(func() error {
		l, err := netlink.LinkByName(device)
		if err != nil {
			return err
		}
		attached, err := link.AttachTCX(link.TCXOptions{Interface: l.Attrs().Index, Program: p, Attach: at, Anchor: where})
		if err != nil {
			return err
		}
		h.tb.Cleanup(func() { attached.Close() })
		return nil
	})
}
