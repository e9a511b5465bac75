package datapath

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/headgate/headgate/pkg/lb"
)

// SocketReplay is a program of sockets, on maps as those of a Replay. The kernel has no test run
// for such programs. So it is attached to a cgroup that is made for it, and a process in there
// calls connect(), or sendto() for datagrams. Behind it a program ends the call before anything is sent, and
// the programs in force, which see the call last, see no Service in it: nothing is counted there, either.
type SocketReplay struct {
	*Replay
	Program string   // its name
	cgroup  *os.File // nil before it is made
	end     *ebpf.Program
	links   []link.Link
	caller  *exec.Cmd
	calls   io.WriteCloser // to the caller
	ended   *bufio.Reader  // what it says of them
}

// NewSocketReplay loads the program that decides about sockets of a protocol and family, which takes
// some tenths of a second, and starts the caller: a process that runs MakeCalls with its stdin
// and stdout, in the network namespace of a file, or in that of the thread with "".
func (r *Reader) NewSocketReplay(protocol lb.Protocol, ip4 bool, netns string, caller *exec.Cmd) (p *SocketReplay, err error) {
	h := makerFor(protocol, ip4)
	replay, err := r.NewReplay(h.program)
	if err != nil {
		return nil, err
	}
	p = &SocketReplay{Replay: replay, Program: h.program}
	defer func() {
		if err != nil {
			p.Close()
		}
	}()
	about := r.maps.about.at(0)
	if p.cgroup, err = newReplayCgroup(decodeString(about.Cgroup[:])); err != nil {
		return p, err
	}
	if p.end, err = ebpf.NewProgram(endCall(h)); err != nil {
		return p, fmt.Errorf("load what ends a call: %w", err)
	}
	for _, program := range []*ebpf.Program{p.program, p.end} { // they run in this order
		l, err := h.link(p.cgroup.Name(), program)
		if err != nil {
			return p, fmt.Errorf("attach %s to %s: %w", h.program, p.cgroup.Name(), err)
		}
		p.links = append(p.links, l)
	}
	return p, p.start(netns, caller)
}

// makerFor returns the program that decides about calls of sockets.
func makerFor(protocol lb.Protocol, ip4 bool) hook {
	name := map[bool]string{true: "sendmsg", false: "connect"}[protocol == lb.UDP] + map[bool]string{true: "4", false: "6"}[ip4]
	for _, h := range makers {
		if h.program == name {
			return h
		}
	}
	return hook{program: name}
}

// replayCgroup begins the names of cgroups of replays. The process that has made one holds a lock on it.
const replayCgroup = "headgate-explain-"

func newReplayCgroup(parent string) (*os.File, error) {
	sweepReplays(parent)
	path, err := os.MkdirTemp(parent, replayCgroup)
	if err != nil {
		return nil, fmt.Errorf("make a cgroup to call from: %w", err)
	}
	dir, err := ownReplayCgroup(path)
	if err != nil {
		_ = unix.Rmdir(path) // fails where another process has taken it for a leftover
		return nil, fmt.Errorf("take cgroup %s to call from: %w", path, err)
	}
	return dir, nil
}

// ownReplayCgroup locks a cgroup that no process has.
func ownReplayCgroup(path string) (*os.File, error) {
	dir, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(dir.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, errors.Join(err, dir.Close())
	}
	return dir, nil
}

// sweepReplays removes cgroups of replays below the one of the programs that processes have left which were killed.
// Programs that are attached there go with them.
func sweepReplays(parent string) {
	left, _ := filepath.Glob(filepath.Join(parent, replayCgroup+"*"))
	for _, path := range left {
		if dir, err := ownReplayCgroup(path); err == nil {
			removeReplayCgroup(dir)
		}
	}
}

// endCall is a program that ends a call with EPERM. The programs of the cgroups above it run all the same: to
// them the call is about port 0 of loopback, where no Service is, and nobody has refused it.
func endCall(h hook) *ebpf.ProgramSpec {
	const userIP4, userIP6, userPort = 4, 8, 24 // of struct bpf_sock_addr in linux/bpf.h
	loopback := encodeAddr(netip.IPv6Loopback())
	offset, to := int16(userIP6), loopback.Word[:]
	if strings.HasSuffix(h.program, "4") {
		loopback = encodeAddr(netip.AddrFrom4([4]byte{127, 0, 0, 1}))
		offset, to = userIP4, loopback.Word[3:]
	}
	var code asm.Instructions
	for i, word := range to {
		code = append(code, asm.Mov.Imm(asm.R2, int32(word)), asm.StoreMem(asm.R1, offset+int16(4*i), asm.R2, asm.Word))
	}
	code = append(code,
		asm.Mov.Imm(asm.R2, 0), asm.StoreMem(asm.R1, userPort, asm.R2, asm.Word),
		asm.Mov.Imm(asm.R1, -int32(unix.EPERM)), asm.FnSetRetval.Call(),
		asm.Mov.Imm(asm.R0, 0), asm.Return())
	return &ebpf.ProgramSpec{Name: "end_call", Type: ebpf.CGroupSockAddr, AttachType: h.attach, Instructions: code}
}

// start starts the caller in the cgroup.
func (p *SocketReplay) start(netns string, caller *exec.Cmd) error {
	caller.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(p.cgroup.Fd())}
	var err error
	if p.calls, err = caller.StdinPipe(); err != nil {
		return err
	}
	ended, err := caller.StdoutPipe()
	if err != nil {
		return err
	}
	p.ended = bufio.NewReader(ended)
	start := caller.Start
	if netns != "" {
		start = func() error { return InNamespace(netns, caller.Start) } // a process begins where the thread is that starts it
	}
	if err := start(); err != nil {
		return fmt.Errorf("start a process in %s: %w", p.cgroup.Name(), err)
	}
	p.caller = caller
	return nil
}

// Decide has the caller ask for an address, with a socket of its own. From is not valid: the socket has
// no address yet. Entries of earlier sockets are gone; affinities that they made stay.
func (p *SocketReplay) Decide(to lb.AddrPort) (d Decision, err error) {
	var first uint32
	slots := p.maps.byName["socket_nat"]
	if err := slots.Put(&first, &headgateSocketSlot{}); err != nil {
		return d, err
	}
	d, err = p.watch(func() error { return p.call(to) })
	if err != nil {
		return d, fmt.Errorf("try %s: %w", p.Program, err)
	}
	var slot headgateSocketSlot
	if err := slots.Lookup(&first, &slot); err != nil {
		return d, err
	}
	d.To = netip.AddrPortFrom(to.Addr, to.Port)
	if slot.Owner != 0 {
		got := decodeAddrPort(slot.Entry.Backend)
		d.To = netip.AddrPortFrom(got.Addr, got.Port)
	}
	return d, nil
}

// callMayTake is far more than a call takes, which waits for nobody. A caller that takes longer is killed.
var callMayTake = 10 * time.Second

// limit kills the caller unless it is stopped in time.
func (p *SocketReplay) limit() *time.Timer {
	return time.AfterFunc(callMayTake, func() { _ = p.caller.Process.Kill() })
}

// call has the caller make a call, which has to end as endCall says.
func (p *SocketReplay) call(to lb.AddrPort) error {
	defer p.limit().Stop()
	if _, err := fmt.Fprintln(p.calls, to); err != nil {
		return err
	}
	line, err := p.ended.ReadString('\n')
	if err != nil {
		return fmt.Errorf("the process that calls has ended, or took more than %v: %w", callMayTake, err)
	}
	if said := strings.TrimSpace(line); said != unix.EPERM.Error() {
		return fmt.Errorf("the call to %s ended in another way: %s", to, said)
	}
	return nil
}

// Close ends the caller, and lets go of all.
func (p *SocketReplay) Close() {
	if p.caller != nil {
		late := p.limit()
		_ = p.calls.Close() // it ends with that
		_ = p.caller.Wait() // what it had to say has been heard
		late.Stop()
	}
	for _, l := range p.links {
		l.Close()
	}
	if p.end != nil {
		p.end.Close()
	}
	if p.cgroup != nil {
		removeReplayCgroup(p.cgroup)
	}
	p.Replay.Close()
}

// removeReplayCgroup removes a cgroup, which a process that has ended may hold for a moment. What is left goes with
// the next replay, the next start of an agent, or Headgate.
func removeReplayCgroup(dir *os.File) {
	defer dir.Close()
	for range 100 {
		if !errors.Is(unix.Rmdir(dir.Name()), unix.EBUSY) {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// MakeCalls reads addresses, a line each, has a new socket ask for each, and says how that ended. It
// is what the caller of a SocketReplay does, and returns when there is no more to read.
func MakeCalls(from io.Reader, to io.Writer) error {
	lines := bufio.NewScanner(from)
	for lines.Scan() {
		at, err := lb.ParseAddrPort(lines.Text())
		if err == nil {
			err = makeCall(at)
		}
		if _, err := fmt.Fprintln(to, err); err != nil {
			return err
		}
	}
	return lines.Err()
}

// makeCall asks for an address with a new socket. It does not wait for an answer.
func makeCall(at lb.AddrPort) error {
	family, end := unix.AF_INET6, unix.Sockaddr(&unix.SockaddrInet6{Port: int(at.Port), Addr: at.Addr.As16()})
	if at.Addr.Is4() {
		family, end = unix.AF_INET, &unix.SockaddrInet4{Port: int(at.Port), Addr: at.Addr.As4()}
	}
	kind := unix.SOCK_STREAM
	if at.Protocol == lb.UDP {
		kind = unix.SOCK_DGRAM
	}
	socket, err := unix.Socket(family, kind|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, int(at.Protocol))
	if err != nil {
		return err
	}
	defer unix.Close(socket)
	if at.Protocol == lb.UDP {
		return unix.Sendto(socket, nil, 0, end)
	}
	return unix.Connect(socket, end)
}
