// Package browser has tests look at pages as a person does: in Debian's Chromium, without a window.
package browser

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Chromium is a browser without a window, which is told what to do by a pipe.
type Chromium struct {
	t       *testing.T
	to      *os.File
	from    *bufio.Reader
	session string
	id      int
	Said    []string // complaints of pages
}

// Start starts Debian's browser, or skips the test.
func Start(t *testing.T) *Chromium {
	t.Helper()
	path, err := exec.LookPath("chromium")
	if err != nil {
		t.Skip("needs chromium in PATH (apt-get install chromium)")
	}
	theirs, to, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	from, theirsToo, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(path, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--remote-debugging-pipe", "--user-data-dir="+t.TempDir())
	cmd.ExtraFiles = []*os.File{theirs, theirsToo}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	theirs.Close()
	theirsToo.Close()
	c := &Chromium{t: t, to: to, from: bufio.NewReader(from)}
	t.Cleanup(func() {
		c.send("", "Browser.close", nil)
		_ = cmd.Wait() // it says how it was ended
		to.Close()
		from.Close()
	})
	return c
}

// message is what goes through the pipe, either way.
type message struct {
	ID        int             `json:"id,omitempty"`
	SessionID string          `json:"sessionId,omitempty"`
	Method    string          `json:"method,omitempty"`
	Params    json.RawMessage `json:"params,omitempty"`
	Result    json.RawMessage `json:"result,omitempty"`
	Error     json.RawMessage `json:"error,omitempty"`
}

func (c *Chromium) send(session, method string, params map[string]any) int {
	c.id++
	body, err := json.Marshal(map[string]any{"id": c.id, "sessionId": session, "method": method, "params": params})
	if session == "" {
		body, err = json.Marshal(map[string]any{"id": c.id, "method": method, "params": params})
	}
	if err == nil {
		_, err = c.to.Write(append(body, 0))
	}
	if err != nil {
		c.t.Error(err)
	}
	return c.id
}

// do has the browser do something, and reads what comes of it.
func (c *Chromium) do(method string, params map[string]any, into any) {
	c.t.Helper()
	id := c.send(c.session, method, params)
	for {
		text, err := c.from.ReadBytes(0)
		if err != nil {
			c.t.Fatalf("%s: %v", method, err)
		}
		var m message
		if err := json.Unmarshal(bytes.TrimSuffix(text, []byte{0}), &m); err != nil {
			c.t.Fatal(err)
		}
		switch {
		case m.ID == id && m.Error != nil:
			c.t.Fatalf("%s: %s", method, m.Error)
		case m.ID == id && into != nil:
			if err := json.Unmarshal(m.Result, into); err != nil {
				c.t.Fatal(err)
			}
			return
		case m.ID == id:
			return
		case m.Method == "Log.entryAdded", m.Method == "Runtime.exceptionThrown":
			c.Said = append(c.Said, string(m.Params))
		}
	}
}

// Open opens a page of a size.
func (c *Chromium) Open(url string, width, height int) {
	c.t.Helper()
	c.session = ""
	var target struct{ TargetID string }
	c.do("Target.createTarget", map[string]any{"url": "about:blank"}, &target)
	var attached struct{ SessionID string }
	c.do("Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}, &attached)
	c.session = attached.SessionID
	c.do("Log.enable", nil, nil)
	c.do("Runtime.enable", nil, nil)
	c.do("Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false}, nil)
	c.do("Page.navigate", map[string]any{"url": url}, nil)
}

// Ask returns what JavaScript says in the page, as text.
func (c *Chromium) Ask(script string) string {
	c.t.Helper()
	var answer struct {
		Result           struct{ Value any }
		ExceptionDetails json.RawMessage
	}
	c.do("Runtime.evaluate", map[string]any{"expression": script, "returnByValue": true, "awaitPromise": true}, &answer)
	if answer.ExceptionDetails != nil {
		c.t.Fatalf("%s: %s", script, answer.ExceptionDetails)
	}
	return fmt.Sprint(answer.Result.Value)
}

// Want waits until JavaScript says something in the page.
func (c *Chromium) Want(script, want string) {
	c.t.Helper()
	var got string
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if got = c.Ask(script); got == want {
			return
		}
	}
	c.t.Errorf("%s is %s, want %s", script, got, want)
}

// Picture writes what is seen to the directory that HEADGATE_UI_PICTURES names, if any.
func (c *Chromium) Picture(name string) {
	c.t.Helper()
	dir := os.Getenv("HEADGATE_UI_PICTURES")
	if dir == "" {
		return
	}
	var shot struct{ Data string }
	c.do("Page.captureScreenshot", map[string]any{"format": "png"}, &shot)
	file, err := os.Create(filepath.Join(dir, name+".png"))
	if err != nil {
		c.t.Fatal(err)
	}
	defer file.Close()
	if _, err := io.Copy(file, base64.NewDecoder(base64.StdEncoding, strings.NewReader(shot.Data))); err != nil {
		c.t.Error(err)
	}
}
