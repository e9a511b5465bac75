package datapath_test

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/headgate/headgate/pkg/datapath"
	"github.com/headgate/headgate/pkg/lb"
)

// A headgate explain that was killed leaves its cgroup, which goes with the next start and with a
// removal. That of one which runs stays.
func TestCgroupsOfReplaysThatWereKilledGo(t *testing.T) {
	cfg := config(t)
	left, taken := filepath.Join(cfg.Cgroup, "headgate-explain-1"), filepath.Join(cfg.Cgroup, "headgate-explain-2")
	if err := os.Mkdir(taken, 0o755); err != nil {
		t.Fatal(err)
	}
	defer os.Remove(taken)
	dir, err := os.Open(taken)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	if err := unix.Flock(int(dir.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		what string
		do   func()
	}{
		{"a start", func() {
			d := mustOpen(t, cfg)
			if err := d.Attach(); err != nil {
				t.Error(err)
			}
			d.Close()
		}},
		{"a removal", func() {
			if _, err := datapath.Remove(cfg.Root, nil); err != nil {
				t.Error(err)
			}
		}},
	} {
		if err := os.Mkdir(left, 0o755); err != nil {
			t.Fatal(err)
		}
		step.do()
		if _, err := os.Stat(left); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("after %s the cgroup that was left is there: %v", step.what, err)
			_ = os.Remove(left)
		}
		if _, err := os.Stat(taken); err != nil {
			t.Errorf("after %s the one in use is not: %v", step.what, err)
		}
	}
}

// What decides in a replay is the code of who asks. Where other code is in force it says so.
func TestAReplayTellsWhetherItsCodeIsInForce(t *testing.T) {
	cfg := config(t)
	d := mustOpen(t, cfg)
	if err := d.Attach(); err != nil {
		t.Fatal(err)
	}
	d.Close()
	differs := func() bool {
		t.Helper()
		r, err := datapath.Inspect(cfg.Root)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		p, err := r.NewReplay("connect6")
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		return p.Differs
	}
	if differs() {
		t.Error("the code in force differs from itself")
	}
	other, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "connect6", Type: ebpf.CGroupSockAddr, AttachType: ebpf.AttachCGroupInet6Connect,
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 1), asm.Return()}, License: "GPL",
	})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	l, err := link.LoadPinnedLink(filepath.Join(cfg.Root, "links", "connect6"), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := l.Update(other); err != nil {
		t.Fatal(err)
	}
	if !differs() {
		t.Error("other code is in force, and nobody says so")
	}
}

// A caller that says nothing is killed.
func TestAReplayWaitsForNoCallerForEver(t *testing.T) {
	cfg := config(t)
	d := mustOpen(t, cfg)
	if err := d.Attach(); err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	r, err := datapath.Inspect(cfg.Root)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	datapath.CallsMayTake(t, 50*time.Millisecond)
	p, err := r.NewSocketReplay(lb.TCP, true, "", exec.Command("sleep", "1000"))
	if err != nil {
		t.Fatal(err)
	}
	to, err := lb.ParseAddrPort("10.96.0.10:80/TCP")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Decide(to); err == nil || !strings.Contains(err.Error(), "took more than 50ms") {
		t.Errorf("a caller that says nothing: %v", err)
	}
	p.Close()
	if left, _ := filepath.Glob(filepath.Join(cfg.Cgroup, "headgate-explain-*")); len(left) > 0 {
		t.Errorf("left is %q", left)
	}
}
