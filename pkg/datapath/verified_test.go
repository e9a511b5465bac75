package datapath_test

import (
	"testing"
	"time"

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
	cfg.Pods, cfg.Redirect, cfg.XDP, cfg.Carrying, cfg.EjectAfter, cfg.MaxEjected = true, true, true, true, 5, 50
	for _, program := range programs {
		t.Run(program, func(t *testing.T) {
			cfg.SockOps = program == "sock_ops"
			if err := datapath.LoadOne(cfg, program); err != nil {
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
	if err := r.Sockets(func(s datapath.Socket) error { seen = append(seen, s); return nil }); err != nil {
		t.Fatal(err)
	}
	if len(seen) != 1 || seen[0].Protocol != lb.TCP || seen[0].From.String() != client.LocalAddr().String() {
		t.Errorf("sockets are %+v, want one from %v", seen, client.LocalAddr())
	}
}
