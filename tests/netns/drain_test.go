package netns_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/headgate/headgate/tests/testenv"
)

// drainYAML is the Service of TCP port 80, or UDP port 53, that lets backends drain.
func drainYAML(protocol, drain string) string {
	text := strings.Replace(serviceYAML("web", "10.96.0.1"), "namespace: default}",
		"namespace: default, annotations: {headgate.dev/drain-time: "+drain+"}}", 1)
	return strings.Replace(text, "TCP", protocol, 1)
}

// ended says whether a socket was told that its backend is gone: nothing comes
// from the backend by itself.
func (s *socket) ended() bool {
	s.tb.Helper()
	fds := []unix.PollFd{{Fd: int32(s.fd), Events: unix.POLLIN}}
	var n int
	if err := again(func() (err error) { n, err = unix.Poll(fds, 0); return err }); err != nil {
		s.tb.Fatal(err)
	}
	return n == 1 && fds[0].Revents&(unix.POLLERR|unix.POLLHUP) != 0
}

// awaitEnd returns when a socket was told, which must not take longer than said.
func (s *socket) awaitEnd(limit time.Duration) {
	s.tb.Helper()
	for end := time.Now().Add(limit); !s.ended(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			s.tb.Fatalf("the socket was not told within %v", limit)
		}
	}
}

func TestSocketsLiveAsLongAsTheirServiceLetsBackendsDrain(t *testing.T) {
	for _, tc := range []struct {
		protocol string
		typ      int
	}{{"TCP", unix.SOCK_STREAM}, {"UDP", unix.SOCK_DGRAM}} {
		t.Run(tc.protocol, func(t *testing.T) {
			leaving := mustServe(t, "10.244.0.1:8080/"+tc.protocol)
			staying := mustServe(t, "10.244.0.2:8080/"+tc.protocol)
			slice := func(b ...*backend) string {
				return strings.Replace(sliceYAML("web", b...), "TCP", tc.protocol, 1)
			}
			a := testenv.NewAgent(t, map[string]string{"web.yaml": drainYAML(tc.protocol, "3s"), "slice.yaml": slice(leaving)})
			a.Start()
			s := mustSocket(t, inet, tc.typ)
			s.mustConnect(at("10.96.0.1:80"))
			say := func(when string) (who string) {
				t.Helper()
				s.send("who")
				if who, _ = s.receive(); who == "" {
					t.Errorf("%s: no answer", when)
				}
				return who
			}
			if tc.typ == unix.SOCK_STREAM {
				s.receive() // its name
			}
			say("connected")

			began := time.Now()
			a.Write("slice.yaml", slice(staying))
			awaitNew(t, staying, tc.typ)
			say("while the backend drains")
			a.Kill()
			a.Start() // the time begins again
			say("after the agent came back")
			if tc.typ == unix.SOCK_DGRAM {
				for end := began.Add(20 * time.Second); say("until the backend is gone") != staying.name(); time.Sleep(5 * time.Millisecond) {
					if time.Now().After(end) {
						t.Fatal("the socket does not get another backend")
					}
				}
			} else {
				s.awaitEnd(20 * time.Second)
			}
			if took := time.Since(began); took < 3*time.Second {
				t.Errorf("the socket lost its backend after %v, want 3 s at least", took)
			}
			if tc.typ == unix.SOCK_DGRAM {
				return
			}
			if _, err := unix.Read(s.fd, make([]byte, 1)); !errors.Is(err, unix.ECONNABORTED) {
				t.Errorf("read says %v, want %v", err, unix.ECONNABORTED)
			}
		})
	}
}

// awaitNew returns when new sockets are sent to a backend.
func awaitNew(t *testing.T, b *backend, typ int) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		s := mustSocket(t, inet, typ)
		s.mustConnect(at("10.96.0.1:80"))
		if typ == unix.SOCK_DGRAM {
			s.send("who")
		}
		who, _ := s.receive()
		s.close()
		if who == b.name() {
			return
		}
	}
	t.Fatalf("new sockets do not come to %s", b.name())
}

func TestADrainTimeThatMakesNoSenseIsSaidAndChangesNothing(t *testing.T) {
	b := mustServe(t, "10.244.0.1:8080/TCP")
	a := testenv.NewAgent(t, map[string]string{"web.yaml": drainYAML("TCP", "soon"), "slice.yaml": sliceYAML("web", b)})
	a.Start()
	s, who := dialTCP(t, inet, at("10.96.0.1:80"))
	if who != b.name() {
		t.Errorf("%q answers, want %q", who, b.name())
	}
	a.Remove("slice.yaml")
	s.awaitEnd(10 * time.Second)
	if said := a.Log.String(); !strings.Contains(said, "headgate.dev/drain-time") || !strings.Contains(said, "is not a duration; changes of the Service's annotations wait") {
		t.Errorf("the agent says:\n%s", said)
	}
}
