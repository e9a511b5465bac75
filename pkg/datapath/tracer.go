package datapath

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/ringbuf"
	"golang.org/x/sys/unix"

	"github.com/headgate/headgate/pkg/lb"
)

// Told is what a connect() or sendmsg() of a socket was decided to.
type Told struct {
	At      time.Time
	Call    string // callConnect or callSendmsg
	PID     uint32
	Netns   uint64 // cookie of the network namespace of the socket
	Process string // the name of its thread
	Asked   lb.AddrPort
	Got     lb.AddrPort // the backend; that of Asked where it was refused
	Refused bool
	Taken   bool // refused, since another socket with the same port has the backend
}

// The calls by which sockets get backends.
const (
	callConnect = "connect"
	callSendmsg = "sendmsg"
)

// Tracer tells of decisions about sockets as they are made. Its programs are attached behind those that
// decide, for as long as this process has it.
type Tracer struct {
	all    *ebpf.Collection
	links  []link.Link
	events *ringbuf.Reader
	booted time.Time
}

// tellers are the programs of a Tracer, and where they are attached.
var tellers = map[string]ebpf.AttachType{
	"tell_connect4": ebpf.AttachCGroupInet4Connect, "tell_connect6": ebpf.AttachCGroupInet6Connect,
	"tell_sendmsg4": ebpf.AttachCGroupUDP4Sendmsg, "tell_sendmsg6": ebpf.AttachCGroupUDP6Sendmsg,
}

// NewTracer attaches to the cgroup of the programs in force.
func (r *Reader) NewTracer() (t *Tracer, err error) {
	t = &Tracer{}
	defer func() {
		if err != nil {
			t.Close()
		}
	}()
	if t.all, err = r.tracerPrograms(slices.Collect(maps.Keys(tellers))); err != nil {
		return t, fmt.Errorf("trace: %w", err)
	}
	if t.events, err = ringbuf.NewReader(t.all.Maps["tellings"]); err != nil {
		return t, fmt.Errorf("trace: %w", err)
	}
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err != nil {
		return t, fmt.Errorf("read the clock: %w", err)
	}
	t.booted = time.Now().Add(-time.Duration(now.Nano()))
	about := r.maps.about.at(0)
	for name, where := range tellers {
		l, err := link.AttachCgroup(link.CgroupOptions{Path: decodeString(about.Cgroup[:]), Attach: where, Program: t.all.Programs[name]})
		if err != nil {
			return t, fmt.Errorf("attach %s: %w", name, err)
		}
		t.links = append(t.links, l)
	}
	return t, nil
}

// socketMaps are the maps that hold the entries of sockets.
var socketMaps = [...]string{"socket_nat", "stored_entries", "many_entries"}

// tracerPrograms loads some of the programs, with the maps in force that they read.
func (r *Reader) tracerPrograms(names []string) (*ebpf.Collection, error) {
	spec, err := ebpf.LoadCollectionSpecFromReader(bytes.NewReader(builtIn(compressedTracer)))
	if err != nil {
		return nil, err
	}
	maps.DeleteFunc(spec.Programs, func(name string, _ *ebpf.ProgramSpec) bool { return !slices.Contains(names, name) })
	shared := map[string]*ebpf.Map{}
	for _, name := range socketMaps {
		shared[name] = r.maps.byName[name]
		spec.Maps[name].MaxEntries = shared[name].MaxEntries()
	}
	for name := range spec.Maps {
		if shared[name] == nil && name != "tellings" && !isInternal(name) {
			delete(spec.Maps, name) // defined beside those, and of no use here
		}
	}
	if err := setConstants(spec, map[string]any{"slots_mask": shared["socket_nat"].MaxEntries() - 1}); err != nil {
		return nil, err
	}
	c, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{MapReplacements: shared})
	if err != nil {
		return nil, explainLoad(err)
	}
	return c, nil
}

// Read waits until something is decided, or the deadline has passed: then ok is false.
func (t *Tracer) Read(deadline time.Time) (one Told, ok bool, err error) {
	t.events.SetDeadline(deadline)
	record, err := t.events.Read()
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return one, false, nil
	}
	var raw tracerTold
	if err == nil && len(record.RawSample) < int(unsafe.Sizeof(raw)) {
		err = fmt.Errorf("a record of %d bytes", len(record.RawSample))
	}
	if err != nil {
		return one, false, fmt.Errorf("read what the programs tell: %w", err)
	}
	if err := binary.Read(bytes.NewReader(record.RawSample), binary.NativeEndian, &raw); err != nil {
		return one, false, err
	}
	one = Told{
		At: t.booted.Add(time.Duration(raw.AtNs)), Call: callConnect, PID: raw.Pid, Netns: raw.Netns, Refused: raw.Refused != 0, Taken: raw.Refused == uint32(unix.EADDRNOTAVAIL),
		// One type of C, which is written for each object.
		Asked: decodeAddrPort(*(*headgateAddrPort)(unsafe.Pointer(&raw.Asked))), Got: decodeAddrPort(*(*headgateAddrPort)(unsafe.Pointer(&raw.Got))),
	}
	if raw.Hook == tracerToldHookTOLD_SENDMSG {
		one.Call = callSendmsg
	}
	for _, c := range raw.Process {
		if c == 0 {
			break
		}
		one.Process += string(rune(byte(c)))
	}
	return one, true, nil
}

// Lost returns how many decisions were not told of, since they came faster than they were read.
func (t *Tracer) Lost() (n uint64, err error) { return n, t.all.Variables["lost"].Get(&n) }

// Close detaches the programs.
func (t *Tracer) Close() {
	for _, l := range t.links {
		l.Close()
	}
	if t.events != nil {
		t.events.Close()
	}
	if t.all != nil {
		t.all.Close()
	}
}
