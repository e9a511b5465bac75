package healthcheck

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate/pkg/lb"
)

// node is a machine with addresses of its own: what is asked for there is
// served on loopback.
type node struct {
	server  *ServiceServer
	healthy atomic.Bool
	failed  []string // what was reported

	mu      sync.Mutex
	open    map[string]string // address asked for → address served on
	opened  int
	refused map[string]bool
}

func newNode(tb testing.TB, addresses []netip.Addr) *node {
	tb.Helper()
	n := &node{open: map[string]string{}, refused: map[string]bool{}}
	n.healthy.Store(true)
	n.server = NewServiceServer(ServiceConfig{
		Addresses: addresses,
		Healthy:   n.healthy.Load,
		Report: func(s lb.ServiceName, port uint16, err error) {
			if err == nil {
				err = fmt.Errorf("%d is well", port)
			}
			n.failed = append(n.failed, s.String()+": "+err.Error())
		},
		Listen: n.listen,
	})
	tb.Cleanup(n.server.Close)
	return n
}

func (n *node) listen(network, address string) (net.Listener, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.refused[address] || n.open[address] != "" {
		return nil, errors.New(address + " is taken")
	}
	l, err := net.Listen(network, "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	n.open[address] = l.Addr().String()
	n.opened++
	return &freeing{Listener: l, free: func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		delete(n.open, address)
	}}, nil
}

// freeing says when it is closed for the first time.
type freeing struct {
	net.Listener
	once sync.Once
	free func()
}

func (l *freeing) Close() error {
	l.once.Do(l.free)
	return l.Listener.Close()
}

func (n *node) wantOpen(t *testing.T, want ...string) {
	t.Helper()
	n.mu.Lock()
	defer n.mu.Unlock()
	got := []string{}
	for address := range n.open {
		got = append(got, address)
	}
	slices.Sort(got)
	if diff := cmp.Diff(append([]string{}, want...), got); diff != "" {
		t.Errorf("open (-want +got):\n%s", diff)
	}
}

func (n *node) served(address string) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.open[address]
}

func (n *node) dial(t *testing.T, address string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", n.served(address))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// wantAnswer asks on any path and compares status, headers and body.
func (n *node) wantAnswer(t *testing.T, address string, code int, of lb.ServiceName, endpoints int) {
	t.Helper()
	resp, err := http.Get("http://" + n.served(address) + "/whatever/path?and=query")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	var fields map[string]any
	if err := json.Unmarshal(body, &fields); err != nil {
		t.Fatalf("%s: %s", body, err)
	}
	got := map[string]any{"code": resp.StatusCode, "body": fields}
	want := map[string]any{"code": code, "body": map[string]any{
		"service":             map[string]any{"namespace": of.Namespace, "name": of.Name},
		"localEndpoints":      float64(endpoints),
		"serviceProxyHealthy": n.healthy.Load(),
	}}
	for header, value := range map[string]string{
		"Content-Type": "application/json", "X-Content-Type-Options": "nosniff",
		"X-Load-Balancing-Endpoint-Weight": jsonOf(t, endpoints),
	} {
		got[header], want[header] = resp.Header.Get(header), value
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("answer on %s (-want +got):\n%s", address, diff)
	}
}
