package result

import (
	"cmp"
	"fmt"
	"time"
)

// Use is what a run took of the machine. Times are of the time in which it was
// counted. What the kernel does for packets it does mostly in the midst of
// whoever sent them, and is part of that one's time.
type Use struct {
	// Client is that of the client's cgroup.
	Client time.Duration `json:"client_cpu_ns"`
	// Servers is that of the process with the servers, which also measures.
	Servers time.Duration `json:"servers_cpu_ns"`
	// Balancer is that of the load balancer's own processes.
	Balancer time.Duration `json:"balancer_cpu_ns"`
	// Machine is how long CPUs were not idle, whoever it was: all of the above,
	// softirqs of nobody, and whatever else there was on the machine.
	Machine time.Duration `json:"machine_cpu_ns"`
	Memory  Memory        `json:"memory"`
	// Programs are BPF programs of the load balancer, counted by the kernel in
	// a load of their own: counting costs. One run of a measurement has them.
	Programs *Programs `json:"programs,omitempty"`
}

// Memory is what a load balancer holds. What cannot be said is 0.
type Memory struct {
	// Resident is that of its processes, at the end of the run.
	Resident uint64 `json:"resident_bytes"`
	// Maps is what the kernel says that its BPF maps take.
	Maps uint64 `json:"maps_bytes"`
	// Kernel is by how much more the kernel took for slabs, areas of its
	// virtual memory and variables of each CPU when everything was up, than
	// before: maps and rules, and whatever else happened meanwhile.
	Kernel int64 `json:"kernel_bytes"`
	// BringUp is how long that took.
	BringUp time.Duration `json:"bring_up_ns"`
}

// Programs is what BPF programs did in a load.
type Programs struct {
	Operations uint64        `json:"operations"` // of the load
	Runs       uint64        `json:"runs"`
	Time       time.Duration `json:"time_ns"`
	Each       []Program     `json:"each"` // those that ran
}

// Program is one of them.
type Program struct {
	Name string        `json:"name"`
	Runs uint64        `json:"runs"`
	Time time.Duration `json:"time_ns"`
}

// PerOperation is the time of all programs for an operation.
func (p Programs) PerOperation() float64 {
	if p.Operations == 0 {
		return 0
	}
	return float64(p.Time) / float64(p.Operations)
}

// bulkOperation is how many bytes of a bulk load count as an operation where one
// is divided by.
const bulkOperation = 1024

// Operations is what resources are divided by: operations that ended in the
// measured time, datagrams received, KiB of bulk loads.
func (r *Run) Operations() float64 {
	if r.Load.Kind == "bulk" {
		return float64(r.Done()) / bulkOperation
	}
	return float64(r.Done())
}

// cpuMetric is CPU time for an operation.
func cpuMetric(name string, of func(*Use) time.Duration) Metric {
	return Metric{Name: name, Unit: "ns", unsampled: true, of: func(r *Run) (float64, bool) {
		if r.Use == nil || of(r.Use) <= 0 || r.Operations() == 0 {
			return 0, false
		}
		return float64(of(r.Use)) / r.Operations(), true
	}}
}

// CPU is the time of client, servers and load balancer for an operation.
func CPU() Metric { return cpuMetric("cpu", (*Use).all) }

// all is the CPU time of all that take part.
func (u *Use) all() time.Duration { return u.Client + u.Servers + u.Balancer }

// MachineCPU is how long the CPUs of the machine were busy for an operation.
func MachineCPU() Metric {
	return cpuMetric("machine-cpu", func(u *Use) time.Duration { return u.Machine })
}

// ClientCPU is the client's part of CPU.
func ClientCPU() Metric {
	return cpuMetric("client-cpu", func(u *Use) time.Duration { return u.Client })
}

// ProgramTime is how long BPF programs of the load balancer ran for an operation.
func ProgramTime() Metric {
	return Metric{Name: "programs", Unit: "ns", unsampled: true, of: func(r *Run) (float64, bool) {
		if r.Use == nil || r.Use.Programs == nil {
			return 0, false
		}
		return r.Use.Programs.PerOperation(), true
	}}
}

// add adds what another run took; memory is the most that one had.
func (u *Use) add(other *Use) {
	u.Machine += other.Machine
	u.Client += other.Client
	u.Servers += other.Servers
	u.Balancer += other.Balancer
	u.Memory.Resident = max(u.Memory.Resident, other.Memory.Resident)
	u.Memory.Maps = max(u.Memory.Maps, other.Memory.Maps)
	u.Memory.Kernel = max(u.Memory.Kernel, other.Memory.Kernel)
	u.Memory.BringUp = max(u.Memory.BringUp, other.Memory.BringUp)
	u.Programs = cmp.Or(u.Programs, other.Programs)
}

// useText is a line about it.
func (r *Run) useText() string {
	if r.Use == nil || r.Operations() == 0 {
		return ""
	}
	each := func(d time.Duration) string { return short(duration(float64(d) / r.Operations())) }
	text := fmt.Sprintf("%s of CPU time for an operation, %s of it the client's, %s the servers'; the machine was busy for %s",
		each(r.Use.all()), each(r.Use.Client), each(r.Use.Servers), each(r.Use.Machine))
	if r.Use.Balancer > 0 {
		text += fmt.Sprintf("; the load balancer's processes took %s", short(r.Use.Balancer))
	}
	if p := r.Use.Programs; p != nil {
		text += fmt.Sprintf("; BPF programs %s for an operation", short(duration(p.PerOperation())))
	}
	return text
}

// memoryText is a line about memory.
func (r *Run) memoryText() string {
	if r.Use == nil || r.Use.Memory == (Memory{}) {
		return ""
	}
	m := r.Use.Memory
	return fmt.Sprintf("processes %s, BPF maps %s, kernel %s more than before; up after %s",
		Size(float64(m.Resident)), Size(float64(m.Maps)), Size(float64(m.Kernel)), short(m.BringUp))
}

// Size is a number of bytes for people.
func Size(bytes float64) string { return fmt.Sprintf("%.1f MiB", bytes/(1<<20)) }
