package datapath_test

import (
	"bytes"
	"debug/elf"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/headgate/headgate/pkg/plan"
	"github.com/headgate/headgate/tests/testenv"
)

// loaded counts the programs that this process has open.
func loaded(tb testing.TB) int { return opened(tb, "bpf-prog") }

// opened counts the files of a kind, such as bpf-map, that this process has open.
func opened(tb testing.TB, kind string) (n int) {
	tb.Helper()
	files, err := filepath.Glob("/proc/self/fd/*")
	if err != nil {
		tb.Fatal(err)
	}
	for _, f := range files {
		if to, err := os.Readlink(f); err == nil && strings.Contains(to, kind) {
			n++
		}
	}
	return n
}

func TestProgramsAreLoadedOnceMapsAreAsLargeAsTheyHaveToBe(t *testing.T) {
	cfg := config(t)
	before := loaded(t)
	d := mustOpen(t, cfg)
	if err := d.Reserve(plan.Sizes{Backends: 5000}); err != nil {
		t.Fatal(err)
	}
	if n := loaded(t) - before; n != 0 {
		t.Errorf("%d programs are loaded before it is planned what maps hold", n)
	}
	if err := d.Attach(); err != nil {
		t.Fatal(err)
	}
	mustInspect(t, cfg)
}

func TestProgramsOfPodsAreLoadedWithTheFirstPod(t *testing.T) {
	testenv.Need(t)
	veth := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "hg-o0"}, PeerName: "hg-o1"}
	if err := netlink.LinkAdd(veth); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = netlink.LinkDel(veth) })
	cfg := config(t)
	d := mustOpen(t, cfg)
	ofPods := func(when string, want ...string) {
		t.Helper()
		pins, err := filepath.Glob(filepath.Join(cfg.Root, "maps", "pod_*"))
		for i, pin := range pins {
			pins[i] = filepath.Base(pin)
		}
		if err != nil || !slices.Equal(pins, want) {
			t.Errorf("%s there are the programs %v, %v; want %v", when, pins, err, want)
		}
	}
	if err := d.Attach(); err != nil {
		t.Fatal(err)
	}
	ofPods("without a pod")
	pods := []plan.Device{{Index: uint32(veth.Index), Name: "hg-o0", Pod: true}}
	if err := d.SetDevices(pods); err != nil {
		t.Fatal(err)
	}
	ofPods("with the first pod", "pod_in", "pod_out")
	if err := d.Reserve(plan.Sizes{Backends: 5000}); err != nil {
		t.Fatal(err)
	}
	ofPods("after growth", "pod_in", "pod_out")
	d.Close()

	d = mustOpen(t, cfg) // an agent that died when it had pinned one of the two
	if err := errors.Join(os.Remove(filepath.Join(cfg.Root, "maps", "pod_in")), d.Attach(), d.SetDevices(pods)); err != nil {
		t.Fatal(err)
	}
	ofPods("after a restart", "pod_in", "pod_out")
	if err := errors.Join(d.SetDevices(nil), d.Reserve(plan.Sizes{Backends: 10000})); err != nil {
		t.Fatal(err)
	}
	ofPods("after growth when all pods are gone")
	if err := d.SetDevices(pods); err != nil {
		t.Fatal(err)
	}
	ofPods("with the next pod", "pod_in", "pod_out")
}

func TestWhatTheKernelRefusesChangesNothing(t *testing.T) {
	cfg := config(t)
	d := mustOpen(t, cfg)
	mustApply(t, d, someOps()...)
	if err := d.Attach(); err != nil {
		t.Fatal(err)
	}
	d.Close()
	before := mustInspect(t, cfg).Object

	bad := cfg
	bad.Object = withoutResult(t, "cgroup/connect4")
	d = mustOpen(t, bad)
	err := d.Attach()
	if !errors.Is(err, errors.ErrUnsupported) || !strings.HasPrefix(err.Error(), "load the BPF object: program connect4: ") || strings.Contains(err.Error(), "\n") {
		t.Errorf("the kernel's answer is %v", err)
	}
	d.Close()
	if after := mustInspect(t, cfg).Object; after != before {
		t.Errorf("object %s is in force, want %s", after, before)
	}
	if _, err := os.Stat(filepath.Join(cfg.Root, "next")); !os.IsNotExist(err) {
		t.Errorf("maps of a replacement are pinned: %v", err)
	}
	wantContent(t, mustOpen(t, cfg), someOps()...)
}

// withoutResult returns the object with a section whose first program ends without a result,
// which the verifier refuses.
func withoutResult(tb testing.TB, section string) []byte {
	tb.Helper()
	code, err := os.ReadFile("headgate_bpfel.o")
	if err != nil {
		tb.Fatal(err)
	}
	f, err := elf.NewFile(bytes.NewReader(code))
	if err != nil {
		tb.Fatal(err)
	}
	const exit = 0x95
	copy(code[f.Section(section).Offset:], []byte{exit, 0, 0, 0, 0, 0, 0, 0})
	return code
}
