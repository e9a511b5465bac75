package preflight

import (
	"compress/gzip"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// bhLock is what a real-time kernel has to be built with, from Linux 6.18 on: before, each has that lock.
const bhLock = "CONFIG_PREEMPT_RT_NEEDS_BH_LOCK"

// realtime says whether programs of a CPU run one after the other, by files below a root: where they interrupt each other,
// they write to the same memory.
func (r *Report) realtime(root string) {
	version, err := os.ReadFile(filepath.Join(root, "proc/version"))
	if err != nil {
		r.add(notKnown, "whether the kernel is one with PREEMPT_RT: %s", err)
		return
	}
	var release string
	var major, minor int
	_, _ = fmt.Sscanf(string(version), "Linux version %s", &release)
	_, _ = fmt.Sscanf(release, "%d.%d", &major, &minor)
	if !strings.Contains(string(version), " PREEMPT_RT") || major*1000+minor < 6018 {
		r.ok("realtime", "programs of a CPU run one after the other")
		return
	}
	switch config, err := kernelConfig(root, release); {
	case err != nil:
		r.addWith(notKnown, "look for "+bhLock+"=y in the configuration of that kernel: without it, boot another one",
			"whether the kernel, with PREEMPT_RT, has %s: %s", bhLock, err)
	case !strings.Contains(config, bhLock+"=y\n"):
		r.add(realtimeUnlocked, "Linux %s with PREEMPT_RT, without %s", release, bhLock)
	default:
		r.ok("realtime", "programs of a CPU run one after the other, by %s", bhLock)
	}
}

// kernelConfig returns the configuration of the kernel, which that may have itself.
func kernelConfig(root, release string) (string, error) {
	packed, err := os.Open(filepath.Join(root, "proc/config.gz"))
	if err != nil {
		text, err := os.ReadFile(filepath.Join(root, "boot/config-"+release))
		return string(text), err
	}
	defer packed.Close()
	z, err := gzip.NewReader(packed)
	if err != nil {
		return "", err
	}
	text, err := io.ReadAll(z)
	return string(text), err
}
