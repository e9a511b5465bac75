package contender

import (
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/headgate/headgate/pkg/cgroup"
	"github.com/headgate/headgate/pkg/traffic"
	"github.com/headgate/headgate/pkg/traffic/result"
)

const someStat = `cpu  100 0 200 3000 50 0 7 20 0 0
cpu0 50 0 100 1500 25 0 4 10 0 0
cpu1 50 0 100 1500 25 0 3 10 0 0
intr 1 2 3
`

func TestIdleTimeIsRead(t *testing.T) {
	cpus, sum, err := idle(someStat)
	if err != nil || cpus != 2 || sum != 30700*time.Millisecond {
		t.Errorf("%d CPUs were idle for %s, %v; want 2 for 30.7s: without what other guests had", cpus, sum, err)
	}
	for _, bad := range []string{"", "cpu  1 2\n", "cpu0 50 0 100 1500 25 0 4 10 0 0\n"} {
		if _, _, err := idle(bad); err == nil {
			t.Errorf("%q was read", bad)
		}
	}
	at := time.Now()
	first := usage{at: at, cpus: 2, idle: time.Second, client: 5, servers: 6, balancer: 7, pid: 1}
	use := usage{at: at.Add(time.Second), cpus: 2, idle: 2500 * time.Millisecond, client: 15, servers: 26, balancer: 37, pid: 1}.since(first)
	if want := (result.Use{Machine: 500 * time.Millisecond, Client: 10, Servers: 20, Balancer: 30}); *use != want {
		t.Errorf("used %+v, want %+v", *use, want)
	}
	idler := usage{at: at.Add(time.Second), cpus: 2, idle: 3010 * time.Millisecond, client: 15, servers: 26, balancer: 37, pid: 1}.since(first)
	if idler.Machine != 60 {
		t.Errorf("the machine was busy for %s where a tick too much was idle, want the 60ns of its parts", idler.Machine)
	}
}

// A child in the cgroup and this process are busy for known times.
func TestAMeterSeesWhoWasBusy(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root for a cgroup")
	}
	top, err := cgroup.Root()
	if err != nil {
		t.Fatal(err)
	}
	group, err := traffic.NewCgroup(top, traffic.RunName("hg-meter"))
	if err != nil {
		t.Fatal(err)
	}
	defer group.Close()
	p := &Contender{cgroup: group}
	cmd := exec.Command("/bin/sh", "-c", "while :; do :; done")
	group.Adopt(cmd)
	const length = 500 * time.Millisecond
	m := p.startMeter(time.Now().Add(50*time.Millisecond), length)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	before, err := processCPU(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	for began := time.Now(); time.Since(began) < length; { // this process is busy, too
	}
	<-m.done
	after, err := processCPU(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // killed
	use, err := m.stop()
	if err != nil || use == nil {
		t.Fatalf("no use: %v", err)
	}
	const slack = 150 * time.Millisecond
	if took := after - before; use.Client > took+slack || use.Client < took-slack {
		t.Errorf("the client is said to have taken %s, it took about %s", use.Client, took)
	}
	if use.Servers < 10*time.Millisecond || use.Machine < use.Client+use.Servers-slack {
		t.Errorf("this process took %s, the machine %s, the client %s", use.Servers, use.Machine, use.Client)
	}
}

func TestAMeterThatEndsEarlySaysNothing(t *testing.T) {
	m := (&Contender{}).startMeter(time.Now().Add(time.Hour), time.Hour)
	if use, err := m.stop(); use != nil || err != nil {
		t.Errorf("it says %v, %v", use, err)
	}
}

func TestWhatTheKernelTakesIsRead(t *testing.T) {
	if bytes, err := kernelMemory(); err != nil || bytes < 1<<20 {
		t.Errorf("the kernel takes %d bytes, %v", bytes, err)
	}
	if bytes, err := resident(os.Getpid()); err != nil || bytes < 1<<20 {
		t.Errorf("this process takes %d bytes, %v", bytes, err)
	}
}

func TestProgramsAreCountedBetweenTwoLooks(t *testing.T) {
	before := []result.Program{{Name: "a", Runs: 10, Time: 100}, {Name: "b", Runs: 5, Time: 5}}
	after := []result.Program{{Name: "a", Runs: 30, Time: 500}, {Name: "b", Runs: 5, Time: 5}, {Name: "c", Runs: 1, Time: 7}}
	got := difference(before, after, 10)
	if got.Operations != 10 || got.Runs != 21 || got.Time != 407 || len(got.Each) != 2 || got.Each[0] != (result.Program{Name: "a", Runs: 20, Time: 400}) {
		t.Errorf("counted %+v", got)
	}
}
