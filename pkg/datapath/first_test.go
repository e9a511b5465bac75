package datapath_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
)

// A first agent dies while it attaches: the next one has its maps, and the programs that it had verified.
func TestAFirstStartThatDiedIsGoneOnWith(t *testing.T) {
	cfg := config(t)
	connect6 := filepath.Join(cfg.Root, "links", "connect6")
	d := mustOpen(t, cfg)
	mustApply(t, d, someOps()...)
	if err := os.Mkdir(filepath.Dir(connect6), 0o700); err != nil {
		t.Fatal(err)
	}
	pinAnything(t, connect6)
	if d.Attach() == nil {
		t.Fatal("all programs are attached")
	}
	verified := programAt(t, filepath.Join(cfg.Root, "first", "connect6"))
	d.Close()
	if err := os.Remove(connect6); err != nil {
		t.Fatal(err)
	}

	d = mustOpen(t, cfg)
	if d.Serves() {
		t.Error("what is attached in part counts as in force")
	}
	wantContent(t, d, someOps()...)
	if err := d.Attach(); err != nil {
		t.Fatal(err)
	}
	if now := linkedProgram(t, connect6); now != verified {
		t.Errorf("program %d is in force, want %d, which was verified before", now, verified)
	}
	if _, err := os.Stat(filepath.Join(cfg.Root, "first")); !os.IsNotExist(err) {
		t.Errorf("the directory first stays: %v", err)
	}
}

// The maps of a first start of another object are not those of this one, nor are its programs.
func TestAFirstStartOfAnotherObjectIsNotGoneOnWith(t *testing.T) {
	cfg := config(t)
	d := mustOpen(t, cfg)
	mustApply(t, d, someOps()...)
	if err := d.Load(); err != nil {
		t.Fatal(err)
	}
	d.Close()
	other := programAt(t, filepath.Join(cfg.Root, "first", "connect6"))
	cfg.SocketEntries *= 2
	d = mustOpen(t, cfg)
	wantContent(t, d)
	if err := d.Attach(); err != nil {
		t.Fatal(err)
	}
	if linkedProgram(t, filepath.Join(cfg.Root, "links", "connect6")) == other {
		t.Error("a program of another object is in force")
	}
}

func programAt(t *testing.T, pin string) ebpf.ProgramID {
	t.Helper()
	p, err := ebpf.LoadPinnedProgram(pin, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	info, err := p.Info()
	if err != nil {
		t.Fatal(err)
	}
	id, _ := info.ID()
	return id
}

func linkedProgram(t *testing.T, pin string) ebpf.ProgramID {
	t.Helper()
	l, err := link.LoadPinnedLink(pin, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	info, err := l.Info()
	if err != nil {
		t.Fatal(err)
	}
	return info.Program
}
