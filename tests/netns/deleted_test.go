package netns_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/headgate/headgate/tests/testenv"
)

// In a cluster, the Service goes and comes first, and its EndpointSlices follow.
func TestConnectionsOutliveAServiceThatIsMadeAgain(t *testing.T) {
	b := mustServe(t, "10.244.0.1:8080/TCP")
	u := mustServe(t, "10.244.0.1:8080/UDP")
	manifests := func(uid, ip string) (service, slice string) {
		service = strings.Replace(serviceYAML("web", ip), "namespace: default", "namespace: default, uid: "+uid+", creationTimestamp: '2026-01-01T00:00:00Z'", 1)
		service = strings.Replace(service, "protocol: TCP}", "protocol: TCP}, {name: udp, port: 80, protocol: UDP}", 1)
		return service, strings.Replace(sliceYAML("web", b), "protocol: TCP}", "protocol: TCP}, {name: udp, port: 8080, protocol: UDP}", 1)
	}
	service, slice := manifests("former", "10.96.0.1")
	a := testenv.NewAgent(t, map[string]string{"web.yaml": service, "slice.yaml": slice})
	a.Start()
	stands, _ := dialTCP(t, inet, at("10.96.0.1:80"))
	datagrams := mustSocket(t, inet, unix.SOCK_DGRAM)
	datagrams.mustConnect(at("10.96.0.1:80"))
	goesOn := func(when string, d time.Duration) {
		t.Helper()
		for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
			for s, name := range map[*socket]string{stands: "who", datagrams: u.name()} { // TCP echoes
				s.send("who")
				if who, _ := s.receive(); who != name {
					t.Fatalf("%s: %q answers, want %s", when, who, name)
				}
			}
		}
	}
	for _, ip := range []string{"10.96.0.1", "10.96.0.2"} {
		a.Remove("web.yaml")
		goesOn("deleted", 500*time.Millisecond)
		a.Remove("slice.yaml")
		goesOn("without EndpointSlices", 500*time.Millisecond)
		s := mustSocket(t, inet, unix.SOCK_STREAM)
		if err := s.connect(at("10.96.0.1:80")); err == nil {
			t.Error("a new client is connected to a Service that was deleted")
		}
		service, slice = manifests("new-"+ip, ip)
		a.Write("web.yaml", service)
		goesOn("made again", time.Second)
		a.Write("slice.yaml", slice)
		goesOn("with EndpointSlices at "+ip, 3*time.Second)
		if _, who := dialTCP(t, inet, at(ip+":80")); who != b.name() {
			t.Errorf("a new client hears %q, want %s", who, b.name())
		}
	}

	began := time.Now()
	a.Remove("web.yaml")
	a.Remove("slice.yaml")
	stands.awaitEnd(10 * time.Second)
	if took := time.Since(began); took < 2*time.Second {
		t.Errorf("the socket was told after %v, want 2 s at least", took)
	}
	if _, err := unix.Read(stands.fd, make([]byte, 1)); !errors.Is(err, unix.ECONNABORTED) {
		t.Errorf("read says %v, want %v", err, unix.ECONNABORTED)
	}
}

// The agent may read both changes at once, and the former EndpointSlices may go after that.
func TestConnectionsOutliveAServiceThatIsReplaced(t *testing.T) {
	b := mustServe(t, "10.244.0.1:8080/TCP")
	uid := func(uid string) string {
		return strings.Replace(serviceYAML("web", "10.96.0.1"), "namespace: default", "namespace: default, uid: "+uid, 1)
	}
	a := testenv.NewAgent(t, map[string]string{"web.yaml": uid("former"), "slice.yaml": sliceYAML("web", b)})
	a.Start()
	s, _ := dialTCP(t, inet, at("10.96.0.1:80"))
	a.Write("web.yaml", uid("new"))
	time.Sleep(500 * time.Millisecond)
	a.Remove("slice.yaml")
	time.Sleep(time.Second)
	a.Write("slice.yaml", sliceYAML("web", b))
	time.Sleep(3 * time.Second)
	s.send("who")
	if echo, _ := s.receive(); echo != "who" {
		t.Errorf("the server says %q", echo)
	}
}
