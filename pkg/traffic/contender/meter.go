package contender

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/headgate/headgate/pkg/traffic/result"
)

// meter notes what the machine does between two moments.
type meter struct {
	over chan struct{} // closed to have it end early
	done chan struct{} // closed when it has ended
	use  *result.Use
	err  error
}

// startMeter begins at a moment, for so long.
func (p *Contender) startMeter(at time.Time, length time.Duration) *meter {
	m := &meter{over: make(chan struct{}), done: make(chan struct{})}
	go func() {
		defer close(m.done)
		var first, last usage
		if !m.sleepUntil(at) {
			return
		}
		if first, m.err = p.usage(); m.err != nil || !m.sleepUntil(at.Add(length)) {
			return
		}
		if last, m.err = p.usage(); m.err != nil {
			return
		}
		m.use = last.since(first)
	}()
	return m
}

func (m *meter) sleepUntil(at time.Time) bool {
	timer := time.NewTimer(time.Until(at))
	defer timer.Stop()
	select {
	case <-m.over:
		return false
	case <-timer.C:
		return true
	}
}

// stop ends the meter, and returns nil if its time was not over.
func (m *meter) stop() (*result.Use, error) {
	close(m.over)
	<-m.done
	return m.use, m.err
}

// usage is what was used up to a moment.
type usage struct {
	at               time.Time
	cpus             int
	idle             time.Duration // of all CPUs
	client, balancer time.Duration
	servers          time.Duration // of this process
	pid              int           // of the load balancer's process
}

// since returns what was used after an earlier moment. The kernel measures when a
// CPU is idle, while of what a busy one does it takes samples: so that a CPU was
// busy means that it was not idle. Idle time comes in ticks of all CPUs, so over a
// short time it may exceed the truth; the parts are exact, and less than the whole.
func (u usage) since(first usage) *result.Use {
	use := &result.Use{Machine: time.Duration(u.cpus)*u.at.Sub(first.at) - (u.idle - first.idle), Client: u.client - first.client, Servers: u.servers - first.servers}
	if u.pid == first.pid { // else it was started again
		use.Balancer = max(0, u.balancer-first.balancer)
	}
	use.Machine = max(use.Machine, use.Client+use.Servers+use.Balancer)
	return use
}

func (p *Contender) usage() (u usage, err error) {
	if u.cpus, u.idle, err = Idle(); err != nil {
		return u, err
	}
	u.at = time.Now()
	if u.client, err = cgroupCPU(p.cgroup.Path); err != nil {
		return u, err
	}
	if u.servers, err = processCPU(os.Getpid()); err != nil {
		return u, err
	}
	if p.process != nil {
		if u.pid = int(p.process.pid.Load()); u.pid != 0 {
			u.balancer, _ = processCPU(u.pid) // it may have ended just now
		}
	}
	return u, nil
}

// tick is the unit of /proc/stat, USER_HZ.
const tick = 10 * time.Millisecond

// Idle returns how many CPUs the machine has and how long they had nothing to do since it began,
// together. That is exact to 10 ms.
func Idle() (cpus int, sum time.Duration, err error) {
	stat, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, 0, err
	}
	return idle(string(stat))
}

// idle reads how many CPUs there are and how long they had nothing to do, or were
// not there since other guests of the host had them.
func idle(stat string) (cpus int, sum time.Duration, err error) {
	var all []string
	for line := range strings.Lines(stat) {
		fields := strings.Fields(line)
		switch {
		case len(fields) < 9 || !strings.HasPrefix(fields[0], "cpu"):
		case fields[0] == "cpu":
			all = fields
		default:
			cpus++
		}
	}
	if all == nil || cpus == 0 {
		return 0, 0, errors.New("read /proc/stat: no CPUs in it")
	}
	for _, column := range []int{4, 5, 8} { // idle, waiting for devices, taken by other guests
		ticks, err := strconv.ParseInt(all[column], 10, 64)
		if err != nil {
			return 0, 0, fmt.Errorf("read /proc/stat: %w", err)
		}
		sum += time.Duration(ticks) * tick
	}
	return cpus, sum, nil
}

// cgroupCPU is the CPU time of what runs in a cgroup, and ran in it.
func cgroupCPU(path string) (time.Duration, error) {
	us, err := valueOf(filepath.Join(path, "cpu.stat"), "usage_usec")
	return time.Duration(us) * time.Microsecond, err
}

// processCPU is the CPU time of all threads of a process.
func processCPU(pid int) (time.Duration, error) {
	const scheduled = 2 // CPUCLOCK_SCHED
	var t unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|scheduled), &t); err != nil {
		return 0, fmt.Errorf("read the CPU time of process %d: %w", pid, err)
	}
	return time.Duration(t.Nano()), nil
}

// resident is the memory of a process, in bytes.
func resident(pid int) (uint64, error) {
	kib, err := valueOf(fmt.Sprintf("/proc/%d/status", pid), "VmRSS:")
	return uint64(kib) << 10, err
}

// kernelMemory is what the kernel takes for slabs, areas of its virtual memory and
// variables of each CPU, in bytes: rules and maps are in one of them.
func kernelMemory() (sum int64, err error) {
	for _, name := range []string{"Slab:", "VmallocUsed:", "Percpu:"} {
		kib, err := valueOf("/proc/meminfo", name)
		if err != nil {
			return 0, err
		}
		sum += kib << 10
	}
	return sum, nil
}

// valueOf returns the number behind a word at the start of a line of a file.
func valueOf(path, word string) (int64, error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if fields := strings.Fields(lines.Text()); len(fields) > 1 && fields[0] == word {
			return strconv.ParseInt(fields[1], 10, 64)
		}
	}
	return 0, fmt.Errorf("read %s: no %s in it", path, word)
}
