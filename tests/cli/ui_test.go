package cli

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"
)

// asks PATH... has headgate ui serve the node, and prints what its page gets there, a line each.
func asks(ts *testscript.TestScript, _ bool, paths []string) {
	cmd := exec.Command("/proc/self/exe", "ui", "--listen", "127.0.0.1:0", "--bpf-root", ts.Getenv("BPFROOT"), "--state-dir", ts.Getenv("STATE_DIRECTORY"))
	cmd.Args[0] = "headgate"
	said, err := cmd.StdoutPipe()
	ts.Check(err)
	ts.Check(cmd.Start())
	line, err := bufio.NewReader(said).ReadString('\n')
	ts.Check(err)
	address, _, _ := strings.Cut(line, " ")
	for _, path := range paths {
		resp, err := http.Get(address + "api/" + path)
		ts.Check(err)
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		ts.Check(err)
		fmt.Fprintln(ts.Stdout(), resp.StatusCode, strings.TrimSpace(string(body)))
	}
	ts.Check(cmd.Process.Signal(os.Interrupt))
	ts.Check(cmd.Wait())
}
