package browser_test

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/headgate/headgate/pkg/traffic"
	"github.com/headgate/headgate/tests/browser"
	"github.com/headgate/headgate/tests/testenv"
)

// clientProgram is the name of a process that connects: testenv.Main is for tests alone.
const clientProgram = "client"

func TestMain(m *testing.M) {
	if os.Args[0] == clientProgram {
		connectForever(os.Args[1])
	}
	os.Exit(testenv.Main(m))
}

// web is a Service that is asked by packets, too, and one that has nothing.
const web = `apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop, annotations: {headgate.dev/probe: tcp, headgate.dev/probe-interval: "1"}}
spec: {clusterIP: 10.96.0.1, externalIPs: [203.0.113.1], ports: [{name: http, port: 80}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-1, namespace: shop, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{name: http, port: 8080}]
endpoints:
- {addresses: [10.244.2.1], nodeName: node-b, zone: zone-a, targetRef: {kind: Pod, name: web-7d9f-one, namespace: shop}}
- {addresses: [10.244.2.2], nodeName: node-c, zone: zone-b, targetRef: {kind: Pod, name: web-7d9f-two, namespace: shop}}
---
apiVersion: v1
kind: Service
metadata: {name: empty, namespace: shop}
spec: {clusterIP: 10.96.0.2, ports: [{name: http, port: 80}]}
`

// connectForever asks a Service ten times a second, and keeps each connection for some looks of the page.
func connectForever(to string) {
	for ; ; time.Sleep(100 * time.Millisecond) {
		go func() {
			c, err := net.DialTimeout("tcp", to, time.Second)
			if err != nil {
				return // a backend is away
			}
			time.Sleep(3 * time.Second)
			_ = c.Close()
		}()
	}
}

// mustAsk has a process ask a Service until the test ends: one of the node, or one of a machine outside.
func mustAsk(t *testing.T, to string, outside *traffic.Namespace) {
	t.Helper()
	cgroup := testenv.Cgroup(t)
	if outside != nil {
		cgroup = filepath.Dir(cgroup)
	}
	dir, err := os.Open(cgroup)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	cmd := exec.Command("/proc/self/exe", to)
	cmd.Args[0] = clientProgram
	cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(dir.Fd()), Pdeathsig: syscall.SIGKILL}
	start := cmd.Start
	if outside != nil {
		start = func() error { return outside.Start(cmd) }
	}
	if err := start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // says only that it was killed
	})
}

// mustServe has pods of a machine take connections at port 8080.
func mustServe(t *testing.T, machine *traffic.Namespace, addresses ...string) {
	t.Helper()
	for _, address := range addresses {
		if err := move(machine, netlink.AddrAdd, address); err != nil {
			t.Fatal(err)
		}
		var l net.Listener
		err := machine.Do(func() (err error) {
			l, err = net.Listen("tcp", net.JoinHostPort(address, "8080"))
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		testenv.Echo(t, l)
	}
}

// move gives a machine the address of a pod, or takes it away: packets for it are lost then.
func move(machine *traffic.Namespace, add func(netlink.Link, *netlink.Addr) error, address string) error {
	return machine.Do(func() error {
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		addr, err := netlink.ParseAddr(address + "/32")
		return errors.Join(err, add(lo, addr))
	})
}

// mustShow has headgate ui show the node of an agent until the test ends, and returns where.
func mustShow(t *testing.T, a *testenv.Agent) string {
	t.Helper()
	cmd := exec.Command(a.Binary, "ui", "--listen", "127.0.0.1:0", "--bpf-root", a.Root)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	said, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		if err := cmd.Wait(); err != nil {
			t.Errorf("headgate ui ended with %v", err)
		}
	})
	line, err := bufio.NewReader(said).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	address, _, _ := strings.Cut(line, " ")
	return address
}

// What a person looks for in the page.
const (
	row    = `[...document.querySelectorAll('.row:not([hidden])')].find(e => e.dataset.name === 'shop/%s:http/TCP')`
	texts  = `[...document.querySelectorAll('#diagram text')].map(e => e.textContent)`
	inside = `[...document.querySelectorAll('#diagram text')].map(e => [e.getBoundingClientRect(), $('diagram').getBoundingClientRect()]).every(([e, all]) => e.left >= all.left && e.right <= all.right)`
	told   = `(document.querySelector('#told dd.outcome')?.textContent ?? '')`
	events = `[...document.querySelectorAll('#events li')].map(e => e.querySelector('.what').textContent + ' ' + e.querySelector('.who').firstChild.textContent)`
)

func TestAPersonSeesWhatARealNodeDoes(t *testing.T) {
	c := browser.Start(t)
	outside := testenv.Outside(t, "out0")
	mustServe(t, outside, "10.244.2.1", "10.244.2.2")
	a := testenv.NewAgent(t, map[string]string{"web.yaml": web})
	a.Flags = []string{"--devices", "out0", "--probes", "10.244.2.0/24", "--eject-after", "2"}
	a.Start()
	mustAsk(t, "10.96.0.1:80", nil)
	mustAsk(t, "203.0.113.1:80", outside)
	at := mustShow(t, a)
	c.Open(at+"#service=shop%2Fweb%3Ahttp%2FTCP", 1280, 800)
	c.Want(fmt.Sprintf(row, "web")+`?.children[0].textContent`, "well")
	c.Want(`Number(`+fmt.Sprintf(row, "web")+`.children[3].textContent) > 0`, "true")
	c.Want(`Number(document.querySelector('#rate').textContent) > 0`, "true")

	// From the client to both backends, by their zones.
	for _, name := range []string{testenv.OutsideIP.Addr().String(), "zone-a", "zone-b", "web-7d9f-one", "web-7d9f-two"} {
		c.Want(texts+fmt.Sprintf(`.some(e => e.startsWith('%s') && Number(e.slice('%[1]s'.length)) > 0)`, name), "true")
	}
	c.Want(`[...document.querySelectorAll('#diagram .link:not(.idle) title')].filter(e => e.textContent.startsWith('192.0.2.9 →')).length`, "2")
	c.Want(`document.querySelectorAll('#diagram .box.hurt').length`, "0")
	c.Picture("real")

	// One stops answering, and answers again.
	if err := move(outside, netlink.AddrDel, "10.244.2.2"); err != nil {
		t.Fatal(err)
	}
	c.Want(events+`[0]`, "ejected shop/web-7d9f-two")
	c.Want(fmt.Sprintf(row, "web")+`.children[0].textContent`, "avoiding")
	c.Want(`[...document.querySelectorAll('#diagram .box.hurt + title')].map(e => e.textContent.split(' · ')[0]).join()`, "shop/web-7d9f-two")
	c.Picture("real-ejected")
	c.Ask(`document.querySelector('[data-tab="backends"]').click()`)
	c.Want(`[...document.querySelectorAll('#table tr')].map(e => e.children[2].textContent.split(' ')[0]).join()`, "ok,ejected")
	c.Want(`document.querySelector('.wide').scrollWidth <= document.querySelector('.wide').clientWidth`, "true")
	c.Picture("real-backends")
	if err := move(outside, netlink.AddrAdd, "10.244.2.2"); err != nil {
		t.Fatal(err)
	}
	c.Want(events+`[0]`, "no longer avoided shop/web-7d9f-two")

	// Stories.
	c.Ask(`document.querySelector('[data-tab="story"]').click()`)
	c.Want(told+`.startsWith('this connect() goes to 10.244.2.')`, "true")
	c.Picture("real-story")
	c.Ask(fmt.Sprintf(row, "empty") + `.click()`)
	c.Want(`document.querySelector('#name').textContent`, "shop/empty:http/TCP")
	c.Want(told+`.includes('refused')`, "true")
	c.Picture("real-refused")

	c.Open(at+"#service=shop%2Fweb%3Ahttp%2FTCP", 400, 1500)
	c.Want(`document.querySelectorAll('#diagram .link:not(.idle)').length > 3`, "true")
	c.Want(`document.documentElement.scrollWidth <= innerWidth`, "true")
	c.Want(texts+`.some(e => e.startsWith('web-7d9f-one')) + ' ' + `+inside, "true true")
	c.Picture("real-narrow")
	if len(c.Said) > 0 {
		t.Errorf("the browser complains: %q", c.Said)
	}
}

// pageWithin is how long the page of a large node may take to come up: ten times what it takes.
const pageWithin = 10 * time.Second

func TestAPersonFindsAServiceAmongTenThousandOfARealNode(t *testing.T) {
	c := browser.Start(t)
	testenv.Need(t)
	var all strings.Builder
	for i := range 10_000 {
		fmt.Fprintf(&all, `apiVersion: v1
kind: Service
metadata: {name: web-%d, namespace: crowd}
spec: {clusterIP: 10.97.%d.%d, ports: [{name: http, port: 80}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-%[1]d, namespace: crowd, labels: {kubernetes.io/service-name: web-%[1]d}}
addressType: IPv4
ports: [{name: http, port: 8080}]
endpoints: [{addresses: [10.128.%[2]d.%[3]d]}, {addresses: [10.129.%[2]d.%[3]d]}]
---
`, i, i>>8, i&255)
	}
	a := testenv.NewAgent(t, map[string]string{"web.yaml": all.String()})
	a.Start()
	at := mustShow(t, a)
	began := time.Now()
	c.Open(at+"#sort=name", 1280, 800)
	c.Want(`document.querySelectorAll('.row:not([hidden])').length > 10 && document.querySelector('#matched').textContent`, "10,000")
	c.Want(`document.querySelector('#name').textContent`, "crowd/web-0:http/TCP")
	took := time.Since(began)
	if t.Logf("10,000 Services stood in the page after %v", took.Round(10*time.Millisecond)); took > pageWithin {
		t.Errorf("the page came up within %v, want %v", took, pageWithin)
	}
	c.Picture("real-many")
	c.Ask(`document.querySelector('#search').value = 'web-4711'; document.querySelector('#search').dispatchEvent(new Event('input'))`)
	c.Want(`document.querySelector('#matched').textContent`, "1 of 10,000")
	c.Ask(`document.querySelector('.row:not([hidden])').click()`)
	c.Want(`document.querySelector('#name').textContent`, "crowd/web-4711:http/TCP")
	c.Ask(`document.querySelector('[data-tab="story"]').click()`)
	c.Want(told+`.startsWith('this connect() goes to 10.12')`, "true")
	c.Picture("real-many-story")
	if len(c.Said) > 0 {
		t.Errorf("the browser complains: %q", c.Said)
	}
}
