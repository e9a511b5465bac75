package hostile_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/headgate/headgate/pkg/agent"
	"github.com/headgate/headgate/pkg/httpserve"
)

// Numbers of file descriptors.
const (
	ofAgent   = 1024 // that the agent may have, as many processes do
	ofItsWork = 60   // by which those of the agent vary
	ofClients = 2 * 256
	mostIdle  = 5000 // connections to each port
)

// openPorts of the agent are healthz and two health-check NodePorts.
var openPorts = []netip.AddrPort{netip.AddrPortFrom(nodeAddr, 10256), netip.AddrPortFrom(nodeAddr, 30900), netip.AddrPortFrom(nodeAddr, 30901)}

// checked returns a Service with a health-check NodePort.
func checked(number int) object {
	return object{
		namespace: "victim", name: fmt.Sprintf("checked-%d", number), created: "2025",
		spec: []string{"type: LoadBalancer", "externalTrafficPolicy: Local", fmt.Sprintf("healthCheckNodePort: %d", 30900+number),
			fmt.Sprintf("clusterIP: 10.96.1.%d", number), fmt.Sprintf("clusterIPs: [10.96.1.%d]", number)},
		ports: []string{"{name: t, protocol: TCP, port: 80, targetPort: 8080}"}, targets: webTargets[:1], endpoints: []netip.Addr{web1Addr},
	}
}

// The attacker outside opens thousands of connections and sends nothing.
func TestIdleConnectionsTakeNoDescriptors(t *testing.T) {
	state := t.TempDir()
	s := newStage(t, map[string]string{"web.yaml": victim.yaml(), "checked.yaml": checked(0).yaml() + checked(1).yaml()},
		"--healthz-bind-address", "0.0.0.0:10256", "--state-dir", state)
	s.addVictims()
	s.limitDescriptors(ofAgent)
	got := s.suffer(t, attack{"wire: idle connections", nil, idleConnections(state), nil}, 2*time.Second)
	t.Logf("the attacker got:\n%s", table([]*row{got}))
	got.judge(t)
}

func TestFewFreeDescriptorsAreAProblemUntilThereAreMore(t *testing.T) {
	state := t.TempDir()
	s := newStage(t, manifests, "--state-dir", state)
	told := func() bool {
		return strings.Contains(string(s.agent.Output("status", "--state-dir", state)), "less than 10 % of them are free")
	}
	for _, few := range []bool{false, true, false} {
		becomes := func() bool {
			limit := ofAgent
			if few {
				limit = s.descriptors() + 4 // a report takes some
			}
			s.limitDescriptors(limit)
			return told() == few
		}
		if !within(10*time.Second, becomes) {
			t.Errorf("beside %d open descriptors few are free: %t; status says the opposite", s.descriptors(), few)
		}
	}
}

// idleConnections opens connections to all open ports until the victim has tried all else.
func idleConnections(state string) func(context.Context, *stage, *row) {
	return func(ctx context.Context, s *stage, got *row) {
		before := s.descriptors()
		attacking, stop := context.WithCancel(s.tb.Context())
		var attackers, many sync.WaitGroup
		held := make([][]int, len(openPorts))
		for i, port := range openPorts {
			many.Add(1)
			attackers.Go(func() { held[i] = s.holdIdle(attacking, port, many.Done) })
		}
		many.Wait()
		if now := s.descriptors(); now > before+ofClients+ofItsWork {
			got.gain("%d descriptors of the agent, %d before", now, before)
		}
		s.wantLate(ctx, got)
		s.wantAnswers(state, got)
		stop()
		attackers.Wait()
		defer closeAll(slices.Concat(held...))
		s.tb.Logf("with %d idle connections the agent has %d descriptors, %d before", len(slices.Concat(held...)), s.descriptors(), before)
		if !within(httpserve.Brief+3*time.Second, func() bool { return s.descriptors() <= before+ofItsWork }) {
			got.gain("%d descriptors of the agent at last, %d before", s.descriptors(), before)
		}
	}
}

// holdIdle opens connections from outside, without a pause for the first ones, until the context ends. It
// returns the last of them: those before, the attacker closes.
func (s *stage) holdIdle(ctx context.Context, to netip.AddrPort, many func()) (held []int) {
	many = sync.OnceFunc(many)
	defer many()
	for most := idleToEach(); ctx.Err() == nil; {
		err := s.topology.Namespace("outside").Do(func() error {
			fd, err := dial(unix.SOCK_STREAM, to, time.Second)
			held = append(held, fd)
			return err
		})
		if err != nil || len(held) == most {
			many()
		}
		if len(held) > most {
			closeAll(held[:1])
			held = held[1:]
			pause(ctx, time.Millisecond)
		}
	}
	return held
}

// idleToEach leaves this process a quarter of its descriptors.
func idleToEach() int {
	var limit unix.Rlimit
	_ = unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) // fails for a bad pointer alone
	return int(min(mostIdle, limit.Cur/4))
}

// wantAnswers asks each open port, and the agent's socket.
func (s *stage) wantAnswers(state string, got *row) {
	for _, port := range openPorts {
		var err error
		if !within(5*time.Second, func() bool { err = s.checkHealth(port); return err == nil }) {
			got.gain("the health check of %v fails: %v", port, err)
		}
	}
	ctx, cancel := context.WithTimeout(s.tb.Context(), 5*time.Second)
	defer cancel()
	if _, err := (&agent.Place{StateDir: state}).AskLive(ctx); err != nil {
		got.gain("the command line gets no answer: %v", err)
	}
}

// checkHealth asks from outside as a load balancer does.
func (s *stage) checkHealth(port netip.AddrPort) error {
	client := http.Client{Timeout: time.Second, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(_ context.Context, network, address string) (c net.Conn, err error) {
			err = s.topology.Namespace("outside").Do(func() (err error) {
				c, err = net.DialTimeout(network, address, time.Second)
				return err
			})
			return c, err
		},
	}}
	answer, err := client.Get(fmt.Sprintf("http://%v/healthz", port))
	if err != nil {
		return err
	}
	answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("answer %s", answer.Status)
	}
	return nil
}

// descriptors returns how many the agent has open.
func (s *stage) descriptors() int {
	s.tb.Helper()
	all, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", s.agent.PID()))
	if err != nil {
		s.tb.Fatal(err)
	}
	return len(all)
}

// limitDescriptors sets how many the agent may have.
func (s *stage) limitDescriptors(most int) {
	s.tb.Helper()
	limit := unix.Rlimit{Cur: uint64(most), Max: ofAgent}
	if err := unix.Prlimit(s.agent.PID(), unix.RLIMIT_NOFILE, &limit, nil); err != nil {
		s.tb.Fatal(err)
	}
}

// within says whether something becomes true in time.
func within(limit time.Duration, is func() bool) bool {
	for began := time.Now(); ; time.Sleep(50 * time.Millisecond) {
		if is() {
			return true
		}
		if time.Since(began) > limit {
			return false
		}
	}
}

func closeAll(fds []int) {
	for _, fd := range fds {
		_ = unix.Close(fd)
	}
}
