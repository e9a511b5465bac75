package ui

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// chromium is a browser without a window, which is told what to do by a pipe.
type chromium struct {
	t       *testing.T
	to      *os.File
	from    *bufio.Reader
	session string
	id      int
	said    []string // complaints of pages
}

// mustStartChromium starts Debian's browser, or skips the test.
func mustStartChromium(t *testing.T) *chromium {
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
	c := &chromium{t: t, to: to, from: bufio.NewReader(from)}
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

func (c *chromium) send(session, method string, params map[string]any) int {
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
func (c *chromium) do(method string, params map[string]any, into any) {
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
			c.said = append(c.said, string(m.Params))
		}
	}
}

// open opens a page of a size.
func (c *chromium) open(url string, width, height int) {
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

// ask returns what JavaScript says in the page, as text.
func (c *chromium) ask(script string) string {
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

// want waits until JavaScript says something in the page.
func (c *chromium) want(script, want string) {
	c.t.Helper()
	var got string
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if got = c.ask(script); got == want {
			return
		}
	}
	c.t.Errorf("%s is %s, want %s", script, got, want)
}

// picture writes what is seen to the directory that HEADGATE_UI_PICTURES names, if any.
func (c *chromium) picture(name string) {
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

// mustServe serves a node on the loopback.
func mustServe(t *testing.T, f *fake) string {
	server := httptest.NewServer(New(f))
	t.Cleanup(server.Close)
	return server.URL + "/"
}

// shop is three Service ports with traffic, of which one has an ejected backend.
func shop() *fake {
	f := &fake{services: some(3)}
	f.services[0].Backends, f.services[0].PerSecond, f.services[0].Avoided = 6, of(50), 1
	f.services[2].Service, f.services[2].Name = hostile, "shop/"+hostile+":http/TCP"
	f.avoided = []Avoided{{Backend: "10.244.0.1:8080/TCP", Services: []string{f.services[0].Name}, Pod: "shop/web-0-0", Node: "node-b", Zone: "zone-a", Since: time.Now()}}
	for i := range 40 {
		f.flows = append(f.flows, Flow{ID: uint64(i), Open: true, Client: netip.AddrFrom4([4]byte{192, 0, 2, byte(i % 3)}), Backend: fmt.Sprintf("10.244.0.%d:8080/TCP", 2+i%5)})
	}
	return f
}

func TestAPersonSeesTheNodeInABrowser(t *testing.T) {
	c := mustStartChromium(t)
	c.open(mustServe(t, shop()), 1280, 800)
	c.want(`document.querySelectorAll('.row:not([hidden])').length`, "3")
	c.want(`document.querySelector('#verdict').textContent`, "Well")
	c.want(`document.querySelector('#name').textContent`, "shop/web-0:http/TCP") // the one that is in trouble
	c.want(`document.querySelectorAll('#diagram .link:not(.idle)').length > 5`, "true")
	c.want(`document.querySelectorAll('#diagram .box.hurt').length`, "1")
	c.want(`[...document.querySelectorAll('#events .what')].map(e => e.textContent).join()`, "ejected")
	c.picture("three")
	c.ask(`document.querySelector('#theme').click()`)
	c.want(`document.documentElement.dataset.theme`, "dark")
	c.ask(`document.querySelector('[data-unit="open"]').click()`)
	c.want(`[...document.querySelectorAll('#diagram tspan')].some(e => e.textContent === '14')`, "true")
	c.picture("three-dark")
	c.ask(`document.querySelector('[data-tab="backends"]').click()`)
	c.want(`[...document.querySelectorAll('#table tr')].map(e => e.children[2].textContent).join()`, "ejected for 5s,ok,ok,ok,ok,ok")
	c.picture("backends-dark")
	c.ask(`document.querySelector('[data-tab="story"]').click()`)
	c.want(`document.querySelector('#told dd.outcome')?.textContent`, "connect() goes straight to one of the backends")
	c.ask(`document.querySelector('#from').value = 'nobody'; document.querySelector('#ask button').click()`)
	c.want(`document.querySelector('#told .wrong')?.textContent`, "--from: not an address")
	c.ask(`document.querySelector('#from').value = ''`)
	c.said = nil // the browser tells of each answer that is an error
	// A name that is markup is text.
	c.ask(`[...document.querySelectorAll('.row')].find(e => e.dataset.name.includes('<img')).click()`)
	c.want(`document.querySelector('#name').textContent.includes('<img')`, "true")
	c.want(`document.title + document.querySelectorAll('img').length`, "node-a – Headgate0")
	c.ask(`document.querySelector('#verdict').click()`)
	c.want(`document.querySelector('#status dd')?.textContent`, "v1.2.3 on node-a: WELL")
	c.picture("story-dark")
	if len(c.said) > 0 {
		t.Errorf("the browser complains: %q", c.said)
	}
}

func TestTheRowsOfManyServicesAreThoseThatAreVisible(t *testing.T) {
	c := mustStartChromium(t)
	f := &fake{services: some(10_000)}
	c.open(mustServe(t, f)+"#sort=name&unit=open", 1280, 800)
	c.want(`document.querySelectorAll('.row:not([hidden])').length > 10`, "true")
	c.want(`document.querySelector('#matched').textContent`, "10,000")
	c.picture("many")
	c.ask(`document.querySelector('#rows').scrollTop = 1e9`)
	c.want(`[...document.querySelectorAll('.row:not([hidden])')].some(e => e.dataset.name === 'shop/web-9999:http/TCP')`, "true")
	c.want(`document.querySelectorAll('.row').length < 80`, "true")
	c.ask(`document.querySelector('#search').value = 'web-77'; document.querySelector('#search').dispatchEvent(new Event('input'))`)
	c.want(`document.querySelector('#matched').textContent`, "111 of 10,000")
	c.ask(`document.querySelector('#search').value = 'web-777'; document.querySelector('#search').dispatchEvent(new Event('input'))`)
	c.want(`document.querySelectorAll('.row:not([hidden])').length`, "11")
	c.ask(`document.querySelector('#search').value = 'nothing'; document.querySelector('#search').dispatchEvent(new Event('input'))`)
	c.want(`document.querySelector('#none')?.checkVisibility() && document.querySelector('#none').textContent`, "No Service has this in its name or in an address.")
	if len(c.said) > 0 {
		t.Errorf("the browser complains: %q", c.said)
	}
}

// An address that somebody keeps says all that is looked at: nothing stays of the one before.
func TestAnotherAddressOfThePageShowsWhatItHas(t *testing.T) {
	c := mustStartChromium(t)
	c.open(mustServe(t, shop())+"#service=shop%2Fweb-1%3Ahttp%2FTCP&search=web-1&sort=name&descending=true&tab=story&unit=open", 1280, 800)
	c.want(`document.querySelectorAll('.row:not([hidden])').length`, "1")
	c.want(`document.querySelector('#told')?.textContent.includes('ClusterIP of shop/web-1')`, "true")
	c.ask(`location.hash = '#service=shop%2Fweb-0%3Ahttp%2FTCP&tab=story'`)
	c.want(`document.querySelector('#name').textContent`, "shop/web-0:http/TCP")
	c.want(`document.querySelector('#told')?.textContent.includes('ClusterIP of shop/web-0')`, "true")
	c.ask(`location.hash = '#unit=rate'`)
	c.want(`document.querySelectorAll('.row:not([hidden])').length`, "3")
	c.want(`JSON.stringify(asked)`, `{"service":"shop/web-0:http/TCP","search":"","sort":"state","descending":false,"tab":"traffic","unit":"rate"}`)
	c.want(`document.querySelector('#search').value`, "")
	if len(c.said) > 0 {
		t.Errorf("the browser complains: %q", c.said)
	}
}

func TestANodeWithoutServicesAndANarrowWindow(t *testing.T) {
	c := mustStartChromium(t)
	c.open(mustServe(t, &fake{}), 1280, 800)
	c.want(`document.querySelector('#none')?.checkVisibility() && document.querySelector('#none').textContent`, "No Service is in force on this node.")
	c.picture("none")
	c.open(mustServe(t, shop()), 400, 1500)
	c.want(`document.querySelectorAll('#diagram .link').length > 5`, "true")
	c.want(`document.documentElement.scrollWidth <= innerWidth`, "true")
	c.picture("narrow")
	if len(c.said) > 0 {
		t.Errorf("the browser complains: %q", c.said)
	}
}
