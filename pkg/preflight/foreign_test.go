package preflight

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/headgate/headgate/pkg/datapath"
	"github.com/headgate/headgate/pkg/netdev"
	"github.com/headgate/headgate/tests/testenv"
)

// mustProgram returns a program that lets everything pass.
func mustProgram(tb testing.TB, name string, kind ebpf.ProgramType, at ebpf.AttachType, verdict int32) (p *ebpf.Program, id uint32) {
	tb.Helper()
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: name, Type: kind, AttachType: at, License: "GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, verdict), asm.Return()}})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { p.Close() })
	info, err := p.Info()
	if err != nil {
		tb.Fatal(err)
	}
	number, _ := info.ID()
	return p, uint32(number)
}

// mustCgroup makes a cgroup below another until the test ends.
func mustCgroup(tb testing.TB, in, name string) string {
	tb.Helper()
	dir := filepath.Join(in, name)
	if err := os.Mkdir(dir, 0o755); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := os.Remove(dir); err != nil {
			tb.Error(err)
		}
	})
	return dir
}

func TestProgramsOfOthersAtSocketsAreNamedWithTheirOwner(t *testing.T) {
	upper := mustCgroup(t, testenv.Cgroup(t), "upper")
	lower := mustCgroup(t, upper, "lower")
	cfg := datapath.Config{Root: testenv.BPFRoot(t), Cgroup: lower}
	found := func() *Report {
		r := &Report{}
		r.foreign(cfg, nil, []process{{os.Getpid(), "somebody"}})
		return r
	}
	wantFound(t, found(), "ok programs-of-others: none at the hooks of Headgate")
	for _, one := range []struct {
		cgroup, name string
		at           ebpf.AttachType
	}{{upper, "cil_connect", ebpf.AttachCGroupInet4Connect}, {lower, "other", ebpf.AttachCGroupUDP6Sendmsg}} {
		p, _ := mustProgram(t, one.name, ebpf.CGroupSockAddr, one.at, 1)
		l, err := link.AttachCgroup(link.CgroupOptions{Path: one.cgroup, Attach: one.at, Program: p})
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
	}
	mine, _ := mustProgram(t, "connect6", ebpf.CGroupSockAddr, ebpf.AttachCGroupInet6Connect, 1)
	l, err := link.AttachCgroup(link.CgroupOptions{Path: lower, Attach: ebpf.AttachCGroupInet6Connect, Program: mine})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := os.MkdirAll(filepath.Join(cfg.Root, "links"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := l.Pin(filepath.Join(cfg.Root, "links", "connect6")); err != nil { // as an agent does
		t.Fatal(err)
	}
	me := fmt.Sprintf("somebody (pid %d)", os.Getpid())
	wantFound(t, found(), "warning programs-at-sockets: "+lower+" has programs of Cilium: cil_connect at connect4",
		"warning programs-at-sockets: "+lower+" has programs of "+me+": other at sendmsg6")
	r := &Report{}
	r.foreign(datapath.Config{Root: cfg.Root, Cgroup: upper}, nil, nil)
	wantFound(t, r, "warning programs-at-sockets: "+upper+" has programs of Cilium: cil_connect at connect4")
}

func TestAProgramThatLetsNoOtherBeAttachedIsAFailure(t *testing.T) {
	upper := mustCgroup(t, testenv.Cgroup(t), "upper")
	lower := mustCgroup(t, upper, "lower")
	p, id := mustProgram(t, "alone", ebpf.CGroupSockAddr, ebpf.AttachCGroupInet6Connect, 1)
	for _, tc := range []struct {
		at    string
		flags uint32
		fails bool
	}{{lower, 0, true}, {lower, unix.BPF_F_ALLOW_OVERRIDE, true}, {lower, unix.BPF_F_ALLOW_MULTI, false},
		{upper, 0, true}, {upper, unix.BPF_F_ALLOW_OVERRIDE, false}, {upper, unix.BPF_F_ALLOW_MULTI, false}} {
		dir, err := os.Open(tc.at)
		if err != nil {
			t.Fatal(err)
		}
		if err := link.RawAttachProgram(link.RawAttachProgramOptions{Target: int(dir.Fd()), Program: p, Attach: ebpf.AttachCGroupInet6Connect, Flags: tc.flags}); err != nil {
			t.Fatal(err)
		}
		r := &Report{}
		r.foreign(datapath.Config{Root: testenv.BPFRoot(t), Cgroup: lower}, nil, nil)
		want := []string{"warning programs-at-sockets: " + lower + " has programs of an unknown owner: alone at connect6"}
		if tc.fails {
			want = append([]string{fmt.Sprintf("failure cgroup-taken: alone (program %d) at connect6 of %s lets no other program be attached", id, lower)}, want...)
		}
		wantFound(t, r, want...)
		// It is as the kernel has it.
		l, err := link.AttachCgroup(link.CgroupOptions{Path: lower, Attach: ebpf.AttachCGroupInet6Connect, Program: p})
		if (err != nil) != tc.fails {
			t.Errorf("at %s with flags %d: the kernel says %v", tc.at, tc.flags, err)
		}
		if err == nil {
			l.Close()
		}
		if err := link.RawDetachProgram(link.RawDetachProgramOptions{Target: int(dir.Fd()), Program: p, Attach: ebpf.AttachCGroupInet6Connect}); err != nil {
			t.Error(err)
		}
		dir.Close()
	}
}

func TestProgramsOfOthersAtDevicesAreNamed(t *testing.T) {
	testenv.EnterNetns(t)
	index := addDevice(t, "leg")
	r := &Report{}
	cfg := datapath.Config{Root: testenv.BPFRoot(t), Cgroup: testenv.Cgroup(t)}
	devices := []netdev.Device{{Index: index, Name: "leg"}}
	r.foreign(cfg, devices, nil)
	wantFound(t, r, "ok programs-of-others: none at the hooks of Headgate")
	tc, _ := mustProgram(t, "calico_in", ebpf.SchedCLS, 0, -1)
	qdisc := &netlink.GenericQdisc{QdiscAttrs: netlink.QdiscAttrs{LinkIndex: index, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT}, QdiscType: "clsact"}
	if err := netlink.QdiscAdd(qdisc); err != nil {
		t.Fatal(err)
	}
	for parent, name := range map[uint32]string{netlink.HANDLE_MIN_INGRESS: "calico_in.o:[tc]", netlink.HANDLE_MIN_EGRESS: "calico_in"} {
		f := &netlink.BpfFilter{FilterAttrs: netlink.FilterAttrs{LinkIndex: index, Parent: parent, Handle: 1, Priority: 1, Protocol: unix.ETH_P_ALL}, Fd: tc.FD(), Name: name, DirectAction: true}
		if err := netlink.FilterReplace(f); err != nil {
			t.Fatal(err)
		}
	}
	if err := netdev.SetFilter(netdev.Filter{Index: index, In: true, Name: "device_in"}, tc.FD()); err != nil { // ours
		t.Fatal(err)
	}
	xdp, _ := mustProgram(t, "guard", ebpf.XDP, 0, 2)
	l, err := link.AttachXDP(link.XDPOptions{Program: xdp, Interface: index, Flags: link.XDPGenericMode})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	r = &Report{}
	r.foreign(cfg, devices, nil)
	wantFound(t, r, "warning programs-at-packets: leg has programs of Calico: calico_in at clsact in, calico_in at clsact out",
		"warning programs-at-packets: leg has programs of an unknown owner: guard at xdp")
}

func TestAProgramByTCXIsOneOfOthers(t *testing.T) {
	testenv.EnterNetns(t)
	index := addDevice(t, "leg")
	p, _ := mustProgram(t, "cil_from_netdev", ebpf.SchedCLS, 0, -1)
	l, err := link.AttachTCX(link.TCXOptions{Interface: index, Program: p, Attach: ebpf.AttachTCXIngress})
	if err != nil {
		t.Skipf("this kernel has no tcx: %v", err)
	}
	defer l.Close()
	r := &Report{}
	r.foreign(datapath.Config{Root: testenv.BPFRoot(t), Cgroup: testenv.Cgroup(t)}, []netdev.Device{{Index: index, Name: "leg"}}, nil)
	wantFound(t, r, "warning programs-at-packets: leg has programs of Cilium: cil_from_netdev at tcx in")
}

// cnis are programs by the names that they have where these balance Services themselves, as
// the kernel cuts them (bpf_sock.c and bpf_host.c of Cilium 1.18, connect_balancer_v4.c, ctlb_v6.c and tc_preamble.c
// of Calico 3.30).
var cnis = []struct {
	owner   string
	sockets map[ebpf.AttachType]string
	packets map[ebpf.AttachType]string
	want    []string
}{
	{"Cilium", map[ebpf.AttachType]string{
		ebpf.AttachCGroupInet4Connect: "cil_sock4_connect", ebpf.AttachCGroupInet6Connect: "cil_sock6_connect",
		ebpf.AttachCGroupUDP4Sendmsg: "cil_sock4_sendmsg", ebpf.AttachCgroupInet4GetPeername: "cil_sock4_getpeername",
	}, map[ebpf.AttachType]string{ebpf.AttachTCXIngress: "cil_from_netdev", ebpf.AttachTCXEgress: "cil_to_netdev"}, []string{
		"cil_sock4_conne at connect4", "cil_sock6_conne at connect6", "cil_sock4_sendm at sendmsg4", "cil_sock4_getpe at getpeername4",
		"cil_from_netdev at tcx in", "cil_to_netdev at tcx out",
	}},
	{"Calico", map[ebpf.AttachType]string{
		ebpf.AttachCGroupInet4Connect: "calico_connect_v4", ebpf.AttachCGroupInet6Connect: "calico_connect_v46", ebpf.AttachCGroupUDP4Recvmsg: "calico_recvmsg_v4",
	}, map[ebpf.AttachType]string{ebpf.AttachTCXIngress: "cali_tc_preamble"}, []string{
		"calico_connect_ at connect4", "calico_connect_ at connect6", "calico_recvmsg_ at recvmsg4", "cali_tc_preambl at tcx in",
	}},
}

func TestCNIsThatBalanceServicesAreNamed(t *testing.T) {
	for _, cni := range cnis {
		t.Run(cni.owner, func(t *testing.T) {
			testenv.EnterNetns(t)
			index, cgroup := addDevice(t, "leg"), mustCgroup(t, testenv.Cgroup(t), "root")
			for at, name := range cni.sockets {
				p, _ := mustProgram(t, name, ebpf.CGroupSockAddr, at, 1)
				l, err := link.AttachCgroup(link.CgroupOptions{Path: cgroup, Attach: at, Program: p})
				if err != nil {
					t.Fatal(err)
				}
				defer l.Close()
			}
			for at, name := range cni.packets {
				p, _ := mustProgram(t, name, ebpf.SchedCLS, 0, -1)
				l, err := link.AttachTCX(link.TCXOptions{Interface: index, Program: p, Attach: at})
				if err != nil {
					t.Skipf("this kernel has no tcx: %v", err)
				}
				defer l.Close()
			}
			r := &Report{}
			r.foreign(datapath.Config{Root: testenv.BPFRoot(t), Cgroup: cgroup}, []netdev.Device{{Index: index, Name: "leg"}}, nil)
			var said strings.Builder
			for _, f := range r.Findings {
				fmt.Fprintln(&said, f.Level, f.Name, f.Found, f.Remedy)
			}
			for _, want := range append(cni.want, "warning programs-at-sockets "+cgroup+" has programs of "+cni.owner, "warning programs-at-packets leg has programs of "+cni.owner,
				map[string]string{"Cilium": "kubeProxyReplacement=false", "Calico": "bpfConnectTimeLoadBalancing: Disabled"}[cni.owner]) {
				if !strings.Contains(said.String(), want) {
					t.Errorf("it says\n%swant %q", said.String(), want)
				}
			}
		})
	}
}
