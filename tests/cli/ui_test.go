package cli

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
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
	page, _, _ := strings.Cut(line, " ")
	address, _, _ := strings.Cut(page, "?token=")
	jar, err := cookiejar.New(nil)
	ts.Check(err)
	browser := &http.Client{Jar: jar}
	for _, path := range append([]string{""}, paths...) {
		if path != "" {
			page = address + "api/" + path
		}
		resp, err := browser.Get(page)
		ts.Check(err)
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		ts.Check(err)
		if path == "" { // the page itself
			continue
		}
		fmt.Fprintln(ts.Stdout(), resp.StatusCode, strings.TrimSpace(string(body)))
	}
	ts.Check(cmd.Process.Signal(os.Interrupt))
	ts.Check(cmd.Wait())
}
