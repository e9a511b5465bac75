package cli

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/headgate/headgate/pkg/command"
)

// Whoever may not see what is drained is told so, and not that nothing is.
func TestWhatIsDrainedIsNotForEverybody(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root becomes somebody else")
	}
	locked := filepath.Join(t.TempDir(), "locked")
	if err := os.Mkdir(locked, 0o700); err != nil {
		t.Fatal(err)
	}
	const none = "/none" // an agent that drained nothing keeps no file
	var code int
	var out, errs bytes.Buffer
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // for good: the thread ends as somebody else
		err := unix.Setfsuid(65534)
		code = Run([]string{"drain", "--bpf-root", filepath.Join(locked, "headgate"), "--state-dir", none}, "test", &out, &errs)
		done <- err
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if code != command.ExitWrong || out.Len() > 0 || !strings.HasSuffix(errs.String(), fs.ErrPermission.Error()+"; run it with sudo\n") {
		t.Errorf("exit code %d, %q, %q, want one line that permission is denied", code, &out, &errs)
	}
}
