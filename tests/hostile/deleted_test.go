package hostile_test

import (
	"bytes"
	"errors"
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Clients outside keep their connections when a Service is deleted and made again, and lose them
// some time after it was deleted for good.
func TestConnectionsFromOutsideOutliveAServiceThatIsMadeAgain(t *testing.T) {
	web := victim
	web.targets = []string{"{name: t, protocol: TCP, port: 7000}"}
	s := newStage(t, map[string]string{"web.yaml": web.yaml()})
	for name, at := range map[string]netip.Addr{"web-1": web1Addr, "web-2": web2Addr} {
		(&drill{stage: s}).echo(name, netip.AddrPortFrom(at, 7000))
	}
	stand := map[string]net.Conn{}
	for name, to := range map[string]netip.AddrPort{"NodePort": nodePort, "load balancer": loadBalancer} {
		s.do("outside", func() (err error) {
			stand[name], err = net.DialTimeout("tcp", to.String(), 5*time.Second)
			return err
		})
		t.Cleanup(func() { _ = stand[name].Close() })
	}
	goOn := func(when string, d time.Duration) {
		t.Helper()
		for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
			for name, c := range stand {
				if err := ask(c); err != nil {
					t.Fatalf("%s: %s: %v", when, name, err)
				}
			}
		}
	}
	goOn("at first", time.Second)
	s.agent.Remove("web.yaml")
	goOn("deleted", time.Second)
	if err := s.askOutside(loadBalancer); err == nil {
		t.Error("a new client is connected to a Service that was deleted")
	}
	s.agent.Write("web.yaml", web.yaml())
	goOn("made again", 4*time.Second)
	if err := s.askOutside(loadBalancer); err != nil {
		t.Errorf("a new client: %v", err)
	}

	s.agent.Remove("web.yaml")
	goOn("deleted again", time.Second)
	time.Sleep(4 * time.Second)
	for name, c := range stand {
		if err := ask(c); !errors.Is(err, unix.ECONNRESET) {
			t.Errorf("%s: %v long after the Service, want %v", name, err, unix.ECONNRESET)
		}
	}
}

// ask says something to a server that repeats it.
func ask(c net.Conn) error {
	if err := c.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
		return err
	}
	if _, err := c.Write([]byte("on")); err != nil {
		return err
	}
	b := make([]byte, 64)
	n, err := c.Read(b)
	if err == nil && !bytes.HasSuffix(b[:n], []byte("on")) {
		err = errWrong
	}
	return err
}
