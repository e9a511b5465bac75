package main

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// machine is where and when figures were measured.
type machine struct {
	Time    string            `json:"time"`
	Kernel  string            `json:"kernel"`
	CPU     string            `json:"cpu"`
	Cores   int               `json:"cores"`
	Go      string            `json:"go"`
	Ebpf    string            `json:"cilium_ebpf"`
	Version string            `json:"headgate"`
	Load    string            `json:"load_average_before"`
	LoadEnd string            `json:"load_average_after"`
	System  map[string]string `json:"system"` // what else decides the figures
}

func thisMachine(repo string) machine {
	m := machine{
		Time: time.Now().UTC().Format("2 January 2006, 15:04 UTC"), CPU: "unknown", Cores: runtime.NumCPU(),
		Go: runtime.Version(), Ebpf: "unknown", Version: "unknown", Load: loadAverage(),
		System: map[string]string{
			"clock source":         firstLine("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
			"returns (SRSO)":       firstLine("/sys/devices/system/cpu/vulnerabilities/spec_rstack_overflow"),
			"spectre v2":           firstLine("/sys/devices/system/cpu/vulnerabilities/spectre_v2"),
			"transparent hugepage": firstLine("/sys/kernel/mm/transparent_hugepage/enabled"),
		},
	}
	var name unix.Utsname
	if err := unix.Uname(&name); err == nil {
		m.Kernel = unix.ByteSliceToString(name.Release[:]) + " " + unix.ByteSliceToString(name.Machine[:])
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, d := range info.Deps {
			if d.Path == "github.com/cilium/ebpf" {
				m.Ebpf = d.Version
			}
		}
	}
	if out, err := exec.Command("git", "-c", "safe.directory=*", "-C", repo, "describe", "--tags", "--always", "--dirty").Output(); err == nil {
		m.Version = strings.TrimSpace(string(out))
	}
	if cpu, ok := cpuModel(); ok {
		m.CPU = cpu
	}
	return m
}

// String is the machine in a few lines.
func (m machine) String() string {
	return fmt.Sprintf("%s\n%s, %d cores, kernel %s, clock source %s\nheadgate %s, %s, cilium/ebpf %s\nload average before: %s",
		m.Time, m.CPU, m.Cores, m.Kernel, m.System["clock source"], m.Version, m.Go, m.Ebpf, m.Load)
}

func cpuModel() (string, bool) {
	f, err := os.Open("/proc/cpuinfo")
	if err != nil {
		return "", false
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if key, value, ok := strings.Cut(lines.Text(), ":"); ok && strings.TrimSpace(key) == "model name" {
			return strings.TrimSpace(value), true
		}
	}
	return "", false
}

func loadAverage() string {
	fields := strings.Fields(firstLine("/proc/loadavg"))
	return strings.Join(fields[:min(3, len(fields))], " ")
}

// firstLine returns the first line of a file, "unknown" if there is none.
func firstLine(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return "unknown"
	}
	line, _, _ := strings.Cut(string(b), "\n")
	return line
}
