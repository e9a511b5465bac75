// Package programs has real programs talk through a Service: servers and clients of Debian and of the Go module proxy,
// with kube-proxy's rules first and with Headgate then. Headgate has to pass whatever the rules pass.
//
//	outside ── router ── node-a ──┬── server ── behind   the server's pod, and what it forwards to
//	                              ├── spare              another backend, where only receivers of logs listen
//	                              └── client             a pod
//
// TestProgramsCarried has the server, spare and behind at another node, node-b, to which node-a carries packets.
//
// Nothing of it is part of make test: make programs-test runs it.
package programs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/headgate/headgate/tests/testenv"
)

// unpacked names the directory where tests/tools/programs has unpacked Debian packages.
const unpacked = "HEADGATE_PROGRAMS"

func TestMain(m *testing.M) {
	if at := os.Getenv(logTo); at != "" {
		logs(at)
		return
	}
	os.Exit(testenv.Main(equipped{m}))
}

// equipped are tests that find the unpacked programs where Debian puts them.
type equipped struct{ *testing.M }

func (e equipped) Run() int {
	if _, bpffs := testenv.Dirs(); os.Getenv(unpacked) != "" && bpffs != "" {
		if err := equip(os.Getenv(unpacked)); err != nil {
			fmt.Fprintln(os.Stderr, "programs:", err)
			return 1
		}
	}
	return e.M.Run()
}

// equip lays the unpacked /usr over that of the machine, in this process and what it starts, and gives sshd its user.
func equip(dir string) error {
	if err := unix.Mount("overlay", "/usr", "overlay", unix.MS_RDONLY, "lowerdir="+filepath.Join(dir, "usr")+":/usr"); err != nil {
		return fmt.Errorf("lay %s over /usr: %w", dir, err)
	}
	users, err := os.ReadFile("/etc/passwd")
	if err != nil {
		return err
	}
	with, err := os.CreateTemp("", "headgate-passwd-")
	if err != nil {
		return err
	}
	defer os.Remove(with.Name()) // the mount keeps it
	_, err = with.WriteString(string(users) + "sshd:x:65533:65534::/run/sshd:/usr/sbin/nologin\n")
	return errors.Join(err, with.Chmod(0o644), with.Close(), unix.Mount(with.Name(), "/etc/passwd", "", unix.MS_BIND, ""))
}
