package result

import (
	"bufio"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"fmt"

	"golang.org/x/sys/unix"
)

// Collect returns the Meta of this machine at this moment, for a command line
// and the versions of what takes part. Of files only the names are kept where the
// line has where they lie on this machine. Call End when the last run is over.
func Collect(command []string, versions map[string]string) Meta {
	m := Meta{
		Command: append([]string(nil), command...), Started: time.Now().UTC(),
		Architecture: runtime.GOARCH, CPU: cpuModel(), CPUs: runtime.NumCPU(),
		LoadBefore: loadAverage(), Versions: map[string]string{"go": runtime.Version()},
		System: map[string]string{
			"clock source":         firstLine("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
			"returns (SRSO)":       firstLine("/sys/devices/system/cpu/vulnerabilities/spec_rstack_overflow"),
			"spectre v2":           firstLine("/sys/devices/system/cpu/vulnerabilities/spectre_v2"),
			"transparent hugepage": firstLine("/sys/kernel/mm/transparent_hugepage/enabled"),
		},
	}
	for i, arg := range m.Command {
		if _, err := os.Stat(arg); i == 0 || filepath.IsAbs(arg) && err == nil {
			m.Command[i] = filepath.Base(arg)
		}
	}
	maps.Copy(m.Versions, versions)
	var name unix.Utsname
	if err := unix.Uname(&name); err == nil {
		m.Kernel = unix.ByteSliceToString(name.Release[:])
	}
	return m
}

// End notes the time and the load at the end.
func (m *Meta) End() {
	m.Ended = time.Now().UTC()
	m.LoadAfter = loadAverage()
}

// cpuModel returns what the kernel calls the CPU: arm64 does not.
func cpuModel() string {
	f, err := os.Open("/proc/cpuinfo")
	if err != nil {
		return "unknown"
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if key, value, ok := strings.Cut(lines.Text(), ":"); ok && strings.TrimSpace(key) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return "unknown"
}

func loadAverage() (load [3]float64) {
	_, _ = fmt.Sscan(firstLine("/proc/loadavg"), &load[0], &load[1], &load[2]) // zero if unknown
	return load
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
