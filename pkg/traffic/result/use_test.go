package result

import (
	"strings"
	"testing"
	"time"
)

// used is a run of a second with 100 operations.
func used(client, servers, balancer, machine time.Duration) Run {
	return Run{
		Elapsed: time.Second, Due: 100, InTime: 100, Completed: 100,
		Use: &Use{Client: client, Servers: servers, Balancer: balancer, Machine: machine, Memory: Memory{Resident: 3 << 20, Kernel: 1 << 20, BringUp: time.Second}},
	}
}

func TestCPUTimeIsForAnOperation(t *testing.T) {
	r := used(10*time.Millisecond, 20*time.Millisecond, 30*time.Millisecond, 90*time.Millisecond)
	r.Use.Programs = &Programs{Operations: 10, Runs: 20, Time: 5 * time.Microsecond}
	for name, want := range map[string]float64{"cpu": 600e3, "client-cpu": 100e3, "machine-cpu": 900e3, "programs": 500} {
		found := false
		for _, m := range Metrics() {
			if m.Name != name {
				continue
			}
			found = true
			if got, ok := m.of(&r); !ok || got != want || m.Unit != "ns" {
				t.Errorf("%s is %v %s, want %v ns", name, got, m.Unit, want)
			}
			if _, ok := m.of(&Run{Elapsed: time.Second, InTime: 1}); ok {
				t.Errorf("a run of which nothing is known has %s", name)
			}
			if i := m.within(r); !(i.Low == 0 && i.High > 1e18) {
				t.Errorf("%s of one run lies within %v, want no bounds: nothing is known of them", name, i)
			}
		}
		if !found {
			t.Errorf("%s is no metric", name)
		}
	}
	bulk := Run{Load: Load{Kind: "bulk"}, Bytes: Bytes{Sent: 2048}, Elapsed: time.Second, Use: &Use{Client: time.Microsecond}}
	if got, _ := CPU().of(&bulk); got != 500 {
		t.Errorf("CPU time of 2 KiB of a bulk load is %v ns each, want 500", got)
	}
	text := new(strings.Builder)
	if err := r.WriteTable(text); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"600µs of CPU time for an operation, 100µs of it the client's, 200µs the servers'; the machine was busy for 900µs; the load balancer's processes took 30ms; BPF programs 500ns for an operation",
		"processes 3.0 MiB, BPF maps 0.0 MiB, kernel 1.0 MiB more than before; up after 1s",
	} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("the table has no %q:\n%s", want, text)
		}
	}
}

func TestUseOfRoundsIsAddedAndMemoryIsTheMost(t *testing.T) {
	a, b := used(1, 2, 3, 4), used(10, 20, 30, 40)
	b.Use.Memory.Resident = 9 << 20
	b.Use.Programs = &Programs{Operations: 1}
	sum := Pool(a, b, Run{Elapsed: time.Second})
	if u := sum.Use; u.Client != 11 || u.Servers != 22 || u.Balancer != 33 || u.Machine != 44 || u.Memory.Resident != 9<<20 || u.Programs == nil {
		t.Errorf("pooled use is %+v", u)
	}
	if a.Use.Client != 1 {
		t.Error("pooling has changed a round")
	}
}
