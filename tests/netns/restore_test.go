package netns_test

import (
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/headgate/headgate/pkg/datapath"
	"github.com/headgate/headgate/pkg/netdev"
	"github.com/headgate/headgate/tests/testenv"
)

// spareDevice is a device of the node without traffic.
const spareDevice = "hg-spare"

// restoredAgent is an agent of one Service and one device, with its metrics.
func restoredAgent(t *testing.T, flags ...string) *testenv.Agent {
	t.Helper()
	testenv.Need(t)
	mustAddSpare(t, 0)
	t.Cleanup(func() { mustDelete(t, spareDevice) })
	b := mustServe(t, "10.244.0.1:8080/TCP")
	a := testenv.NewAgent(t, map[string]string{"web.yaml": serviceYAML("web", "10.96.0.1") + "---\n" + sliceYAML("web", b)})
	a.Flags = append([]string{"--devices", spareDevice, "--metrics-bind-address", metricsAddress, "--healthz-bind-address", healthzAddress}, flags...)
	a.Start()
	eventually(t, "the device has its programs", func() bool { return allAttached(a) })
	return a
}

const (
	metricsAddress = "127.0.0.1:20250"
	healthzAddress = "127.0.0.1:20256"
)

// mustAddSpare makes the spare device, under an index that is free; 0 is any.
func mustAddSpare(t *testing.T, index int) {
	t.Helper()
	spare := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: spareDevice, Index: index}, PeerName: spareDevice + "-end"}
	if err := netlink.LinkAdd(spare); err != nil {
		t.Fatal(err)
	}
}

func mustDelete(t *testing.T, device string) {
	t.Helper()
	l, err := netlink.LinkByName(device)
	if err == nil {
		err = netlink.LinkDel(l)
	}
	if err != nil {
		t.Error(err)
	}
}

// allAttached says whether every program of the node is in force.
func allAttached(a *testenv.Agent) bool {
	s := a.Status()
	if len(s.Devices) != 1 || s.Devices[0].Name != spareDevice {
		return false
	}
	for _, h := range append(s.Hooks, s.Devices[0].Hooks...) {
		if !h.Attached {
			return false
		}
	}
	return s.Agent
}

// isAttached says so of what is below a root, whether an agent runs or not.
func isAttached(t *testing.T, root string) bool {
	t.Helper()
	s := testenv.Status(t, root)
	hooks := slices.Clone(s.Hooks)
	for _, d := range s.Devices {
		hooks = append(hooks, d.Hooks...)
	}
	return !slices.ContainsFunc(hooks, func(h datapath.Hook) bool { return !h.Attached })
}

// isBalanced says whether a client is served by the backend.
func isBalanced(t *testing.T) bool {
	t.Helper()
	s := mustSocket(t, inet, unix.SOCK_STREAM)
	defer s.close()
	if s.connect(at("10.96.0.1:80")) != nil {
		return false
	}
	who, _ := s.receive()
	return who == "10.244.0.1:8080/TCP"
}

// detachPinned detaches the programs whose pin has a name that begins so, as
// "bpftool link detach" does. It can not with those at tracepoints.
func detachPinned(t *testing.T, root, begin string) {
	t.Helper()
	pins, err := filepath.Glob(filepath.Join(root, "links", begin+"*"))
	if err != nil || len(pins) == 0 {
		t.Fatalf("no pins %s*: %v", begin, err)
	}
	for _, pin := range pins {
		l, err := link.LoadPinnedLink(pin, nil)
		if err == nil {
			err = l.Detach()
			l.Close()
		}
		if err != nil && !errors.Is(err, link.ErrNotSupported) {
			t.Fatal(err)
		}
	}
}

func TestProgramsThatSomebodyDetachesComeBack(t *testing.T) {
	a := restoredAgent(t)
	for _, begin := range []string{"connect4", "", "device_"} {
		t.Run("links "+begin, func(t *testing.T) {
			restored := series(t, metricsAddress, "headgate_programs_restored_total ")
			a.Stopped(func() { // which looks every second
				detachPinned(t, a.Root, begin)
				if isAttached(t, a.Root) {
					t.Error("status says that all is attached")
				}
			})
			eventually(t, "clients are served and all is attached", func() bool { return isBalanced(t) && allAttached(a) })
			eventually(t, "it is counted", func() bool {
				now := series(t, metricsAddress, "headgate_programs_restored_total ")
				return len(now) == 1 && now[0] != restored[0]
			})
		})
	}
	if got := series(t, metricsAddress, `headgate_program_attached{device="`+spareDevice+`",hook="device_in"} 1`); len(got) != 1 {
		t.Errorf("the program of the device is not told of: %q", series(t, metricsAddress, "headgate_program_attached"))
	}
	wantLogged(t, a, "the agent has attached them again")
}

// What takes longest of a start is the verifier. An agent that starts after another as it was
// loads nothing: the same programs are in force.
func TestAnAgentThatStartsAgainLoadsNoPrograms(t *testing.T) {
	for _, flags := range [][]string{nil, {"--filters"}} {
		t.Run(strings.Join(flags, " "), func(t *testing.T) {
			a := restoredAgent(t, flags...)
			before := programsInForce(t, a.Root)
			a.Kill()
			a.Start()
			if diff := cmp.Diff(before, programsInForce(t, a.Root)); diff != "" {
				t.Errorf("programs in force, by pin (-before +after):\n%s", diff)
			}
		})
	}
}

// programsInForce returns the kernel's IDs of the programs of pinned links.
func programsInForce(t *testing.T, root string) map[string]ebpf.ProgramID {
	t.Helper()
	ids := map[string]ebpf.ProgramID{}
	pins, err := filepath.Glob(filepath.Join(root, "links", "*"))
	if err != nil || len(pins) == 0 {
		t.Fatalf("no links: %v", err)
	}
	for _, pin := range pins {
		l, err := link.LoadPinnedLink(pin, nil)
		if err != nil {
			t.Fatal(err)
		}
		info, err := l.Info()
		l.Close()
		if err != nil {
			t.Fatal(err)
		}
		ids[filepath.Base(pin)] = info.Program
	}
	return ids
}

// wantLogged waits until the agent has logged something.
func wantLogged(t *testing.T, a *testenv.Agent, what string) {
	t.Helper()
	eventually(t, "the agent logs: "+what, func() bool { return strings.Contains(a.Log.String(), what) })
}

func TestFiltersThatSomebodyRemovesComeBack(t *testing.T) {
	a := restoredAgent(t, "--filters")
	if by := a.Status().Devices[0].Hooks[0].By; by != "clsact" {
		t.Errorf("attached by %q", by)
	}
	filters, err := netdev.Filters()
	if err != nil || len(filters) != 2 {
		t.Fatalf("filters %v, %v", filters, err)
	}
	for _, f := range filters {
		if err := netdev.RemoveFilter(f); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "they are back", func() bool { return allAttached(a) })
	wantLogged(t, a, "device_in on "+spareDevice)
}

// A list of devices that is the same as before says nothing of one that is made
// again under its name and index: programs went with the first.
func TestADeviceThatIsMadeAgainUnderItsIndexHasItsPrograms(t *testing.T) {
	for _, flags := range [][]string{nil, {"--filters"}} {
		t.Run(strings.Join(flags, " "), func(t *testing.T) {
			a := restoredAgent(t, flags...)
			l, err := netlink.LinkByName(spareDevice)
			if err != nil {
				t.Fatal(err)
			}
			index := l.Attrs().Index
			mustDelete(t, spareDevice)
			mustAddSpare(t, index)
			eventually(t, "the device has its programs again", func() bool { return allAttached(a) })
			if d := a.Status().Devices[0]; d.Index != uint32(index) {
				t.Errorf("the device is %+v, want index %d", d, index)
			}
		})
	}
}

func TestPinsThatSomebodyRemovesDetachNothingAndComeBack(t *testing.T) {
	a := restoredAgent(t)
	for _, tc := range []struct {
		name   string
		remove func() error
		undo   func() error
	}{
		{name: "links", remove: func() error { return removeAll(filepath.Join(a.Root, "links", "*")) }},
		{name: "maps", remove: func() error { return removeAll(filepath.Join(a.Root, "maps", "*")) }},
		{name: "all", remove: func() error { return os.RemoveAll(a.Root) }},
		{name: "another file system", remove: func() error { return unix.Mount("bpf", a.Root, "bpf", 0, "") },
			undo: func() error { return unix.Unmount(a.Root, unix.MNT_DETACH) }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for range 2 { // what was pinned again is pinned a third time, too
				if err := tc.remove(); err != nil {
					t.Fatal(err)
				}
				pins := func() int { all, _ := filepath.Glob(filepath.Join(a.Root, "*", "*")); return len(all) }
				before := pins()
				eventually(t, "pins come back", func() bool {
					if !isBalanced(t) {
						t.Fatal("a client is not served while pins are gone")
					}
					return pins() > before
				})
				eventually(t, "status finds everything", func() bool {
					_, err := os.Stat(filepath.Join(a.Root, "maps", "about"))
					return err == nil && allAttached(a)
				})
				if tc.undo != nil {
					if err := tc.undo(); err != nil {
						t.Fatal(err)
					}
					eventually(t, "status finds everything where it was", func() bool { return allAttached(a) })
				}
			}
		})
	}
	wantLogged(t, a, "pins below "+a.Root+": were removed")
	// A change still reaches the programs, and so does the next agent.
	a.Kill()
	a.Start()
	if !isBalanced(t) || !allAttached(a) {
		t.Error("the next agent does not serve")
	}
}

func removeAll(pattern string) error {
	all, err := filepath.Glob(pattern)
	for _, path := range all {
		if err := os.Remove(path); err != nil {
			return err
		}
	}
	return err
}

func TestACgroupThatIsMadeAgainIsServedAgain(t *testing.T) {
	testenv.Need(t)
	parent := testenv.Cgroup(t)
	b := mustServe(t, "10.244.0.1:8080/TCP")
	a := testenv.NewAgent(t, map[string]string{"web.yaml": serviceYAML("web", "10.96.0.1") + "---\n" + sliceYAML("web", b)})
	a.Cgroup = filepath.Join(parent, "again")
	a.Flags = []string{"--healthz-bind-address", healthzAddress}
	if err := os.Mkdir(a.Cgroup, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Remove(a.Cgroup) })
	a.Start()
	within := func(do func()) {
		t.Helper()
		moveTo(t, a.Cgroup)
		defer moveTo(t, parent)
		do()
	}
	within(func() {
		if !isBalanced(t) {
			t.Error("a client is not served")
		}
	})
	if err := os.Remove(a.Cgroup); err != nil {
		t.Fatal(err)
	}
	eventually(t, "/healthz says why", func() bool {
		code, body := healthz(t)
		return code == 503 && strings.Contains(body, "the cgroup "+a.Cgroup+" is gone")
	})
	for _, h := range a.Status().Hooks {
		if attached := strings.HasPrefix(h.Name, "tcp_") || h.Name == "socket_error"; h.Attached != attached {
			t.Errorf("without the cgroup, status says attached %v of %s", h.Attached, h.Name)
		}
	}
	if err := os.Mkdir(a.Cgroup, 0o755); err != nil {
		t.Fatal(err)
	}
	eventually(t, "/healthz is content", func() bool { code, body := healthz(t); return code == 200 && !strings.Contains(body, "reason") })
	within(func() {
		if !isBalanced(t) {
			t.Error("a client of the new cgroup is not served")
		}
	})
}

// healthz asks the agent how it is.
func healthz(t *testing.T) (code int, body string) {
	t.Helper()
	answer, err := http.Get("http://" + healthzAddress + "/healthz")
	if err != nil {
		return 0, err.Error()
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return 0, err.Error()
	}
	return answer.StatusCode, string(text)
}

func moveTo(t *testing.T, cgroup string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(cgroup, "cgroup.procs"), []byte(strconv.Itoa(os.Getpid())), 0); err != nil {
		t.Fatal(err)
	}
}
