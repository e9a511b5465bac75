package datapath_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/headgate/headgate/pkg/datapath"
	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/tests/testenv"
)

// TestTheKernelTakesEveryProgram loads those, too, that few nodes need: what a setting turns
// off, the kernel's verifier does not look at.
func TestTheKernelTakesEveryProgram(t *testing.T) {
	testenv.Need(t)
	programs, err := datapath.Programs()
	if err != nil {
		t.Fatal(err)
	}
	cfg := config(t)
	cfg.Pods, cfg.Redirect, cfg.XDP, cfg.Carrying, cfg.Traffic, cfg.EjectAfter, cfg.MaxEjected = true, true, true, true, true, 5, 50
	for _, program := range programs {
		t.Run(program, func(t *testing.T) {
			t.Parallel() // emulated kernels take minutes
			cfg := cfg
			cfg.SockOps = program == "sock_ops"
			err := datapath.LoadOne(cfg, program)
			if errors.Is(err, unix.EPERM) { // those of iterators of socket storage, here and there
				testenv.NeedStorageIterators(t)
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
}

// TestThoseWhoLookAtSocketsSeeThem has the kernel load what people load while they look.
func TestThoseWhoLookAtSocketsSeeThem(t *testing.T) {
	cfg := config(t)
	d := mustOpen(t, cfg)
	backend := addrPort(1, 8080)
	vip := addrPort(9, 80)
	echo(t, backend)
	mustApply(t, d, servicePort(1, vip, backend, true, true)...)
	if err := d.Attach(); err != nil {
		t.Fatal(err)
	}
	r, err := datapath.Inspect(cfg.Root)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	tracer, err := r.NewTracer()
	if err != nil {
		t.Fatal(err)
	}
	defer tracer.Close()
	client := mustDial(t, vip)
	told, ok, err := tracer.Read(time.Now().Add(20 * time.Second))
	if err != nil || !ok || told.Asked != vip || told.Got != backend {
		t.Errorf("told is %+v, %v, %v; want %v by %v", told, ok, err, backend, vip)
	}
	var seen []datapath.Socket
	var list datapath.SocketList
	defer list.Close()
	if err := list.Each(r, func(s datapath.Socket) error { seen = append(seen, s); return nil }); err != nil {
		t.Fatal(err)
	}
	if len(seen) != 1 || seen[0].Protocol != lb.TCP || seen[0].From.String() != client.LocalAddr().String() {
		t.Errorf("sockets are %+v, want one from %v", seen, client.LocalAddr())
	}
}

// iterators returns the kernel's numbers of the iterators that this process has open.
func iterators(tb testing.TB) (ids []string) {
	tb.Helper()
	files, err := filepath.Glob("/proc/self/fdinfo/*")
	if err != nil {
		tb.Fatal(err)
	}
	for _, f := range files {
		if body, err := os.ReadFile(f); err == nil && strings.Contains(string(body), "link_type:\titer") {
			_, rest, _ := strings.Cut(string(body), "link_id:")
			ids = append(ids, strings.TrimSpace(strings.SplitN(rest, "\n", 2)[0]))
		}
	}
	slices.Sort(ids)
	return ids
}

func TestWhoListsSocketsAgainLoadsNothing(t *testing.T) {
	cfg := config(t)
	backend, vip := addrPort(1, 8080), addrPort(9, 80)
	echo(t, backend)
	before := iterators(t)
	var list datapath.SocketList
	defer list.Close()
	serve := func() *datapath.Datapath {
		t.Helper()
		d := mustOpen(t, cfg)
		mustApply(t, d, servicePort(1, vip, backend, true, true)...)
		if err := d.Attach(); err != nil {
			t.Fatal(err)
		}
		return d
	}
	look := func(when string, want int) []string {
		t.Helper()
		n := 0
		err := datapath.Look(func() (*datapath.Reader, error) { return datapath.Inspect(cfg.Root) }, func(r *datapath.Reader) error {
			return list.Each(r, func(datapath.Socket) error { n++; return nil })
		})
		if err != nil || n != want {
			t.Errorf("%s: %d sockets, %v, want %d", when, n, err, want)
		}
		return iterators(t)
	}
	d := serve()
	mustDial(t, vip)
	first := look("at first", 1)
	if again := look("again", 1); len(first) != len(before)+2 || !slices.Equal(first, again) {
		t.Errorf("iterators are %q before, %q while sockets are listed, %q when they are listed again: want two, which stay", before, first, again)
	}
	d.Close()
	cfg.SocketEntries *= 2
	serve()
	mustDial(t, vip)
	if after := look("with other maps", 2); slices.Equal(first, after) || len(after) != len(first) {
		t.Errorf("iterators are %q, and %q of other maps", first, after)
	}
	list.Close()
	if left := iterators(t); !slices.Equal(left, before) {
		t.Errorf("iterators %q stay open", left)
	}
}
