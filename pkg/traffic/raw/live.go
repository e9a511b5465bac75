package raw

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
)

const (
	// xdpTX is what a program returns for a packet that is to leave by the
	// device that it came from.
	xdpTX = 3
	// xdpDrop is for a packet that goes nowhere.
	xdpDrop = 1
	// liveFrames is BPF_F_TEST_XDP_LIVE_FRAMES.
	liveFrames = 1 << 1
	// liveBatch is how many packets are made for each call of the driver, of
	// 256 that the kernel allows.
	liveBatch = 64
	// A system call takes tens of milliseconds to begin and to end, whatever
	// it does: so it makes as many packets as take about liveTime.
	liveFirst = 1 << 14
	liveMost  = 1 << 20
	liveTime  = 200 * time.Millisecond
)

// live is a sender of live frames: the kernel makes copies of a packet, as if
// the device had received them, and runs a program on each, which gives it a
// source and sends it back by the device.
type live struct {
	template *template
	program  *ebpf.Program
	context  []byte
	most     int // packets in a call
}

// openLive returns a sender for a device in the network namespace of this
// thread. With drop nothing leaves: that is how fast it could be.
func openLive(t *template, device int, drop bool) (*live, error) {
	verdict := int32(xdpTX)
	if drop {
		verdict = xdpDrop
	}
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "bench_packets", Type: ebpf.XDP, Instructions: t.program(verdict), License: "Dual BSD/GPL",
	})
	if err != nil {
		return nil, fmt.Errorf("load the program that makes packets: %w", err)
	}
	// struct xdp_md: data, data_end, data_meta, ingress_ifindex, rx_queue_index,
	// egress_ifindex.
	context := make([]byte, 24)
	binary.NativeEndian.PutUint32(context[4:], uint32(len(t.frame)))
	binary.NativeEndian.PutUint32(context[12:], uint32(device))
	return &live{template: t, program: program, context: context, most: liveFirst}, nil
}

func (l *live) close() error { return l.program.Close() }

func (l *live) atOnce() int { return l.most }

// send makes up to count packets and returns how many.
func (l *live) send(count int) (int, error) {
	began := time.Now()
	_, err := l.program.Run(&ebpf.RunOptions{
		Data: l.template.frame, Context: l.context, Repeat: uint32(count), Flags: liveFrames, BatchSize: liveBatch,
	})
	if errors.Is(err, ebpf.ErrNotSupported) {
		return 0, errors.New("live frames need Linux 5.18: use the ring")
	}
	if err != nil {
		return 0, fmt.Errorf("run the program that makes packets: %w", err)
	}
	if took := time.Since(began); count == l.most && took < liveTime/2 {
		l.most = min(2*l.most, liveMost)
	} else if took > 2*liveTime {
		l.most = max(l.most/2, liveFirst)
	}
	return count, nil
}

// program returns the instructions that do what template.vary does.
func (t *template) program(verdict int32) asm.Instructions {
	const data, end, random, value = asm.R6, asm.R7, asm.R8, asm.R2
	host := int32(binary.NativeEndian.Uint16(t.host[:]))
	network := int32(binary.NativeEndian.Uint16(t.network[:]))
	put := func(reg asm.Register, at int) asm.Instruction { return asm.StoreMem(data, int16(at), reg, asm.Half) }
	code := asm.Instructions{
		asm.LoadMem(data, asm.R1, 0, asm.Word),
		asm.LoadMem(end, asm.R1, 4, asm.Word),
		asm.Mov.Reg(value, data),
		asm.Add.Imm(value, int32(len(t.frame))),
		asm.JGT.Reg(value, end, "out"),
		asm.FnGetPrandomU32.Call(),
		asm.Mov.Reg(random, asm.R0),
		asm.Mov.Reg(value, random),
		asm.And.Imm(value, host),
		asm.Or.Imm(value, network),
		put(value, t.address),
		asm.Xor.Imm(value, 0xffff),
		put(value, t.addressBack),
	}
	if t.identification > 0 {
		code = append(code, put(value, t.identification))
	}
	// As in vary: a port of 32768 and above. The high bit is in its first byte.
	high := int32(binary.NativeEndian.Uint16([]byte{0x80, 0}))
	return append(code,
		asm.Mov.Reg(value, random),
		asm.RSh.Imm(value, 16),
		asm.Or.Imm(value, high),
		put(value, t.port),
		asm.Xor.Imm(value, 0xffff),
		put(value, t.portBack),
		asm.Mov.Imm(asm.R0, verdict),
		asm.Return(),
		asm.Mov.Imm(asm.R0, 0).WithSymbol("out"), // XDP_ABORTED
		asm.Return(),
	)
}
