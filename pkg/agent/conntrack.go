package agent

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/pkg/source/proxyconfig"
)

// conntrackDir is where the kernel's connection tracking is configured, for the
// network namespace of the calling thread.
const conntrackDir = "/proc/sys/net/netfilter"

// mostConntrack is the most entries that kube-proxy gives the kernel's table,
// however many cores there are.
const mostConntrack = 1 << 20

// setKernelConntrack configures the kernel's connection tracking below dir as
// kube-proxy does: others count on it. What is 0 stays as it is, and a table that
// is larger than asked for stays so. Where the kernel tracks no connections there
// is nothing to do.
func setKernelConntrack(dir string, c proxyconfig.Conntrack) error {
	return errors.Join(
		raiseMax(dir, c),
		writeSeconds(dir, "nf_conntrack_tcp_timeout_established", c.TCPEstablishedTimeout),
		writeSeconds(dir, "nf_conntrack_tcp_timeout_close_wait", c.TCPCloseWaitTimeout),
		writeSeconds(dir, "nf_conntrack_udp_timeout", c.UDPTimeout),
		writeSeconds(dir, "nf_conntrack_udp_timeout_stream", c.UDPStreamTimeout),
		writeLiberal(dir, c.TCPBeLiberal),
	)
}

func raiseMax(dir string, c proxyconfig.Conntrack) error {
	if c.MaxPerCore == 0 {
		return nil
	}
	want := min(max(c.MaxPerCore*runtime.NumCPU(), c.Min), mostConntrack)
	text, err := os.ReadFile(filepath.Join(dir, "nf_conntrack_max"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if have, err := strconv.Atoi(strings.TrimSpace(string(text))); err == nil && have >= want {
		return nil
	}
	return writeSysctl(dir, "nf_conntrack_max", want)
}

func writeSeconds(dir, name string, d time.Duration) error {
	if d == 0 {
		return nil
	}
	return writeSysctl(dir, name, int(d/time.Second))
}

func writeLiberal(dir string, liberal bool) error {
	if !liberal {
		return nil
	}
	return writeSysctl(dir, "nf_conntrack_tcp_be_liberal", 1)
}

func writeSysctl(dir, name string, value int) error {
	f, err := os.OpenFile(filepath.Join(dir, name), os.O_WRONLY|os.O_TRUNC, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("set %s to %d: %w", name, value, err)
	}
	defer f.Close()
	if _, err := fmt.Fprint(f, value); err != nil {
		return fmt.Errorf("set %s to %d: %w", name, value, err)
	}
	return nil
}
