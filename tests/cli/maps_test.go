package cli

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/headgate/headgate/pkg/datapath"
	"github.com/headgate/headgate/pkg/netdev"
)

func pinnedMap(ts *testscript.TestScript, name string) *ebpf.Map {
	m, err := ebpf.LoadPinnedMap(filepath.Join(ts.Getenv("BPFROOT"), "maps", name), nil)
	ts.Check(err)
	ts.Defer(func() { m.Close() })
	return m
}

// forget MAP removes everything from a hash behind the agent's back.
func forget(ts *testscript.TestScript, _ bool, args []string) {
	m := pinnedMap(ts, args[0])
	var keys [][]byte
	var key, value []byte
	all := m.Iterate()
	for all.Next(&key, &value) {
		keys = append(keys, append([]byte(nil), key...))
	}
	ts.Check(all.Err())
	for _, k := range keys {
		ts.Check(m.Delete(k))
	}
}

// remember CLIENT SERVICE BACKEND notes which backend a client had last, by the IDs of Service
// port and backend, as programs do. CLIENT is an address, or pod:ADDRESS of a pod on this node.
func remember(ts *testscript.TestScript, _ bool, args []string) {
	addr, isPod := strings.CutPrefix(args[0], "pod:")
	client, err := netip.ParseAddr(addr)
	ts.Check(err)
	if isPod {
		ts.Check(datapath.EachNamespace(func(_ string, cookie uint64) error {
			if has, err := netdev.Addresses(); err != nil || !has[netip.MustParseAddr(addr)] {
				return err
			}
			client = datapath.LocalClient(cookie, true)
			return nil
		}))
	}
	service, err := strconv.ParseUint(args[1], 10, 32)
	ts.Check(err)
	backend, err := strconv.ParseUint(args[2], 10, 32)
	ts.Check(err)
	key := struct {
		Client  [16]byte
		Service uint32
	}{client.As16(), uint32(service)}
	value := struct {
		Had       uint64
		Slot, Pad uint32
	}{Had: backend << 32}
	ts.Check(pinnedMap(ts, "affinities").Put(&key, &value))
}

// tracing [MANY] waits until so many commands trace, one by default; with "!" there is none.
func tracing(ts *testscript.TestScript, neg bool, args []string) {
	many, err := strconv.Atoi(append(args, "1")[0])
	ts.Check(err)
	cgroup, err := os.Open(ts.Getenv("CGROUP"))
	ts.Check(err)
	defer cgroup.Close()
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		found, err := link.QueryPrograms(link.QueryOptions{Target: int(cgroup.Fd()), Attach: ebpf.AttachCGroupUDP6Sendmsg})
		ts.Check(err)
		switch n := len(found.Programs); {
		case neg && n > 1:
			ts.Fatalf("%d programs are attached to sendmsg6", n)
		case neg || n > many:
			return
		case time.Now().After(end):
			ts.Fatalf("nothing traces")
		}
	}
}

// dial [-in NETNS] tcp|udp ADDRESS PORT has a process in the cgroup connect, whatever becomes of that.
func dial(ts *testscript.TestScript, _ bool, args []string) {
	cgroup, err := os.Open(ts.Getenv("CGROUP"))
	ts.Check(err)
	defer cgroup.Close()
	var command []string
	if args[0] == "-in" {
		command, args = []string{"ip", "netns", "exec", args[1]}, args[2:]
	}
	_ = dialer(cgroup, append(command, "timeout", "1", "bash", "-c", "exec 3<>/dev/"+strings.Join(args, "/"))...).Run()
}

func dialer(cgroup *os.File, command ...string) *exec.Cmd {
	cmd := exec.Command(command[0], command[1:]...)
	cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(cgroup.Fd()), Pdeathsig: syscall.SIGKILL}
	return cmd
}

// hold tcp|udp ADDRESS PORT has a process in the cgroup connect, and keep its socket until the script ends.
func hold(ts *testscript.TestScript, _ bool, args []string) {
	end, err := holdSocket(ts.Getenv("CGROUP"), args...)
	ts.Check(err)
	ts.Defer(end)
}

func holdSocket(in string, to ...string) (end func(), err error) {
	cgroup, err := os.Open(in)
	if err != nil {
		return nil, err
	}
	defer cgroup.Close()
	cmd := dialer(cgroup, "bash", "-c", "exec 3<>/dev/"+strings.Join(to, "/")+" && echo held && exec sleep 600")
	said, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return nil, err
	}
	end = func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // says only that it was killed
	}
	if _, err := said.Read(make([]byte, len("held"))); err != nil {
		end()
		return nil, fmt.Errorf("connect to %s: %w", to, err)
	}
	return end, nil
}
