package datapath_test

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate/pkg/datapath"
	"github.com/headgate/headgate/pkg/plan"
)

// deviceLinks returns what is pinned of devices.
func deviceLinks(tb testing.TB, cfg datapath.Config) []string {
	tb.Helper()
	pins, err := os.ReadDir(filepath.Join(cfg.Root, "links"))
	if err != nil {
		tb.Fatal(err)
	}
	var out []string
	for _, p := range pins {
		if strings.HasPrefix(p.Name(), "device_") {
			out = append(out, p.Name())
		}
	}
	slices.Sort(out)
	return out
}

// needTCX skips a test on a kernel without tcx, which filters_test.go tells of. What
// decides is the kernel, asked with a program that does nothing.
func needTCX(t *testing.T) {
	t.Helper()
	attachOther(t, ebpf.AttachTCXIngress).Close()
}

// attachOther attaches a program of others to lo. It passes every packet, and later programs do not see these.
func attachOther(t *testing.T, at ebpf.AttachType) link.Link {
	t.Helper()
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SchedCLS, License: "GPL", Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()}})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	l, err := link.AttachTCX(link.TCXOptions{Interface: 1, Program: p, Attach: at})
	if errors.Is(err, ebpf.ErrNotSupported) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

func TestProgramsComeBeforeThoseOfOthers(t *testing.T) {
	cfg := config(t)
	ways := []ebpf.AttachType{ebpf.AttachTCXIngress, ebpf.AttachTCXEgress}
	for _, at := range ways {
		attachOther(t, at)
	}
	d := mustOpen(t, cfg)
	if err := d.Attach(); err != nil {
		t.Fatal(err)
	}
	if err := d.SetDevices([]plan.Device{{Index: 1, Name: "lo", IP4: netip.MustParseAddr("192.0.2.1")}}); err != nil {
		t.Fatal(err)
	}
	for _, at := range ways {
		attachOther(t, at)
		found, err := link.QueryPrograms(link.QueryOptions{Target: 1, Attach: at})
		if err != nil || len(found.Programs) < 3 {
			t.Fatalf("%s: %d programs, want 3 at least: %v", at, len(found.Programs), err)
		}
		first, err := ebpf.NewProgramFromID(found.Programs[0].ID)
		if err != nil {
			t.Fatal(err)
		}
		defer first.Close()
		info, err := first.Info()
		if err != nil || !strings.HasPrefix(info.Name, "device_") {
			t.Errorf("%s: %q comes first (%v)", at, info.Name, err)
		}
	}
}

func TestProgramsAreOnJustTheDevicesThatAreSet(t *testing.T) {
	cfg := config(t)
	needTCX(t)
	d := mustOpen(t, cfg)
	if err := d.Attach(); err != nil {
		t.Fatal(err)
	}
	lo := []plan.Device{{Index: 1, Name: "lo", IP4: netip.MustParseAddr("192.0.2.1")}}
	if err := d.SetDevices(lo); err != nil {
		t.Fatal(err)
	}
	attached := []string{"device_in_1", "device_out_1"}
	if diff := cmp.Diff(attached, deviceLinks(t, cfg)); diff != "" {
		t.Errorf("links (-want +got):\n%s", diff)
	}
	writes := d.Writes()
	if err := d.SetDevices(lo); err != nil || d.Writes() != writes {
		t.Errorf("the same devices again: %v, %d writes", err, d.Writes()-writes)
	}
	if err := d.SetDevices([]plan.Device{lo[0], {Index: 9999, Name: "gone"}}); err == nil || !strings.Contains(err.Error(), "device gone") {
		t.Errorf("a device that is not there: %v", err)
	}
	d.Close()

	d = mustOpen(t, cfg) // another agent
	if err := d.Attach(); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(attached, deviceLinks(t, cfg)); diff != "" {
		t.Errorf("links after adoption (-want +got):\n%s", diff)
	}
	if err := d.Reserve(plan.Sizes{Backends: 5000}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(attached, deviceLinks(t, cfg)); diff != "" {
		t.Errorf("links after growth (-want +got):\n%s", diff)
	}
	if err := d.SetDevices(nil); err != nil {
		t.Fatal(err)
	}
	if left := deviceLinks(t, cfg); len(left) > 0 {
		t.Errorf("no device, and %v", left)
	}
}
