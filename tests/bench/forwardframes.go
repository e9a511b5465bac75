package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"

	"github.com/headgate/headgate/pkg/traffic/raw"
)

// What the program that makes frames returns.
const (
	xdpDrop = 1
	xdpTX   = 3
)

const (
	liveFrames = 1 << 1 // BPF_F_TEST_XDP_LIVE_FRAMES
	// liveBatch is how many frames go in one go: fewer than a device takes from
	// its queue at once, so that they are forwarded before the next ones.
	liveBatch = 32
	frameSize = 64
)

// frames sends UDP frames from the sender to the server of a path.
type frames struct {
	path    *forwardPath
	objects framesObjects
	sender  int       // index of its device
	end     link.Link // of the program at the server
	closers []func() error
}

// A frameCase is a number of flows by a path.
type frameCase struct {
	flows       int
	established bool
	ns          []float64 // of a frame that arrives, with its making, round by round
}

func newFrames(p *forwardPath) (*frames, error) {
	f := &frames{path: p}
	if err := loadFramesObjects(&f.objects, nil); err != nil {
		return nil, fmt.Errorf("load the programs that make frames: %w", err)
	}
	f.closers = append(f.closers, f.objects.Close)
	if err := errors.Join(f.attach(theSender, f.objects.Sink), f.attach(theServer, f.objects.Sink), f.configure()); err != nil {
		return f, err
	}
	// Or the device has no queue that frames could go through.
	return f, raw.EnableGRO(p.topology.Namespace(theNode).Path(), toSender)
}

// attach has a program take in what comes from the node.
func (f *frames) attach(machine string, program *ebpf.Program) error {
	return f.path.topology.Namespace(machine).Do(func() error {
		l, err := netlink.LinkByName(toNode)
		if err != nil {
			return err
		}
		f.end, err = link.AttachTCX(link.TCXOptions{Interface: l.Attrs().Index, Program: program, Attach: ebpf.AttachTCXIngress})
		if err != nil {
			return fmt.Errorf("attach to %s of %s: %w", toNode, machine, err)
		}
		f.closers = append(f.closers, f.end.Close)
		return nil
	})
}

// configure says from where to where frames go.
func (f *frames) configure() error {
	from, index, err := f.hardware(theSender, toNode)
	if err != nil {
		return err
	}
	to, _, err := f.hardware(theNode, toSender)
	if err != nil {
		return err
	}
	f.sender = index
	first, n, port := f.path.target()
	first = nth(first, 1)
	number := func(b [4]byte) uint32 { return binary.BigEndian.Uint32(b[:]) }
	o := &f.objects
	return errors.Join(
		o.From.Set([6]byte(from)), o.To.Set([6]byte(to)), o.Client.Set(number(frameNet4.As4())),
		o.Server.Set(number(first.As4())), o.ServerMask.Set(uint32(n-1)), o.ServerPort.Set(uint32(port)),
	)
}

func (f *frames) hardware(machine, device string) (mac net.HardwareAddr, index int, err error) {
	err = f.path.topology.Namespace(machine).Do(func() error {
		l, err := netlink.LinkByName(device)
		if err == nil {
			mac, index = l.Attrs().HardwareAddr, l.Attrs().Index
		}
		return err
	})
	if err == nil && len(mac) != 6 {
		err = fmt.Errorf("device %s of %s is not Ethernet", device, machine)
	}
	return mac, index, err
}

// establish takes every flow there and back, at first three times: all that keep
// state take it for one that lives then.
func (f *frames) establish(c *frameCase) error {
	times := 1
	if !c.established {
		times = 3
	}
	if err := errors.Join(f.end.Update(f.objects.Echo), f.path.drivers.end(false)); err != nil {
		return err
	}
	before, err := f.path.topology.Received(theSender, toNode)
	if err != nil {
		return err
	}
	// Some at a time, since there may be room for few that are not confirmed. Of
	// the first ones some are lost while neighbours are asked for.
	const some = 1 << 13
	for begin := 0; begin < c.flows; begin += some {
		for range times {
			if err := f.objects.Next.Set(uint32(begin)); err != nil {
				return err
			}
			if _, err := f.send(c.flows, min(some, c.flows), xdpTX); err != nil {
				return err
			}
		}
	}
	after, err := f.path.topology.Received(theSender, toNode)
	if err != nil {
		return err
	}
	if back := after - before; back < uint64(c.flows)*uint64(max(times-1, 1))*9/10 {
		return fmt.Errorf("%d frames of %d flows come back, which were sent %d times", back, c.flows, times)
	}
	c.established = true
	return errors.Join(f.end.Update(f.objects.Sink), f.path.drivers.end(true))
}

// measure notes what a frame costs that arrives, with its making.
func (f *frames) measure(c *frameCase, count int) error {
	if err := f.establish(c); err != nil {
		return err
	}
	before, err := f.path.topology.Received(theServer, toNode)
	if err != nil {
		return err
	}
	took, err := f.send(c.flows, count, xdpTX)
	if err != nil {
		return err
	}
	after, err := f.path.topology.Received(theServer, toNode)
	if err != nil {
		return err
	}
	arrived := after - before
	if arrived < uint64(count)*9/10 {
		return fmt.Errorf("%d of %d frames of %d flows arrive", arrived, count, c.flows)
	}
	c.ns = append(c.ns, took/float64(arrived))
	return nil
}

// send makes frames, and returns the time of the CPU: the way to the server is
// walked in this thread, too, whenever a batch is sent.
func (f *frames) send(flows, count int, verdict uint32) (ns float64, err error) {
	context := make([]byte, 24) // struct xdp_md
	binary.NativeEndian.PutUint32(context[4:], frameSize)
	binary.NativeEndian.PutUint32(context[12:], uint32(f.sender))
	err = errors.Join(f.objects.FlowMask.Set(uint32(flows-1)), f.objects.Verdict.Set(verdict))
	if err != nil {
		return 0, err
	}
	err = f.path.topology.Namespace(theSender).Do(func() error {
		waited, from := waiting(), clock()
		_, err := f.objects.MakeFrame.Run(&ebpf.RunOptions{
			Data: make([]byte, frameSize), Context: context, Repeat: uint32(count), Flags: liveFrames, BatchSize: liveBatch,
		})
		ns = float64(clock() - from - (waiting() - waited))
		return err
	})
	return ns, err
}

// waiting is how long this thread was ready to run while others did. What
// interrupts and deferred work take from a thread is counted as the thread's
// CPU time by some kernels only, so that the clock less this is what is left.
func waiting() (ns int64) {
	b, err := os.ReadFile("/proc/thread-self/schedstat")
	if err != nil {
		return 0
	}
	var ran int64
	_, _ = fmt.Fscan(strings.NewReader(string(b)), &ran, &ns)
	return ns
}

func (f *frames) close() error {
	var errs []error
	for _, c := range f.closers {
		errs = append(errs, c())
	}
	return errors.Join(errs...)
}
