package network

import (
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/headgate/headgate/pkg/statefile"
	"github.com/headgate/headgate/tests/testenv"
)

// churn is flows of clients outside that talk without a pause.
type churn struct {
	done   atomic.Bool
	asked  atomic.Int64 // and answered
	losses errgroup.Group
}

// TestNoFlowIsLostWhileAgentsAndEndpointsChange has flows go through a node, to its pod and
// to that of another node, while agents replace its programs, device by device, and
// endpoints that no flow uses come and go: a packet may pass programs of two generations.
func TestNoFlowIsLostWhileAgentsAndEndpointsChange(t *testing.T) {
	n := newNetwork(t, true) // by two devices
	for _, node := range n.nodes {
		node.serve()
	}
	s := optionStage{network: n, node: n.nodes[0], log: &testenv.LockedBuffer{}}
	s.node.log, s.node.options = s.log, []string{"--log-level", "info"}
	n.write("services.yaml", services)
	n.startAgentOf(s.node, testenv.BPFRoot(t), frontendCount)
	s.node.awaitBalance(n.devices)
	var c churn
	c.openTo(t, n, s.node)
	c.losses.Go(func() error { return c.changeEndpoints(n.manifests) })
	for _, options := range [][]string{nil, {"--flows", "131072"}, {"--flows", "65536"}} {
		s.replaceAgent(t, syscall.SIGKILL, options)
	}
	c.done.Store(true)
	if err := c.losses.Wait(); err != nil {
		t.Error(err)
	}
	if n := c.asked.Load(); n < 1000 {
		t.Errorf("flows had %d answers meanwhile, which is too few to tell", n)
	}
}

// openTo opens flows through a node, by every family and protocol, and lets them talk.
func (c *churn) openTo(t *testing.T, n *network, node *node) {
	t.Helper()
	for _, f := range families {
		for _, port := range []uint16{onNode1, onNode2} {
			for _, protocol := range []string{"tcp", "udp"} {
				c.open(t, n, protocol, node.at(f, port))
			}
		}
	}
}

func (c *churn) open(t *testing.T, n *network, protocol string, to netip.AddrPort) {
	t.Helper()
	conn, err := n.client.dial(protocol, to)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	said, err := oneAnswer(conn)
	if err != nil {
		t.Fatal(err)
	}
	c.losses.Go(func() error {
		for !c.done.Load() {
			now, err := oneAnswer(conn)
			if err != nil || now != said {
				return fmt.Errorf("%s %s: %q after %q, %w", protocol, to, now, said, err)
			}
			c.asked.Add(1)
			time.Sleep(time.Millisecond)
		}
		return nil
	})
}

// oneAnswer asks once: what is lost is not sent again but by TCP.
func oneAnswer(conn net.Conn) (string, error) {
	if err := conn.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		return "", err
	}
	if _, err := conn.Write([]byte("who\n")); err != nil {
		return "", err
	}
	answer := make([]byte, 256)
	n, err := conn.Read(answer)
	return string(answer[:n]), err
}

// changeEndpoints has a Service get an endpoint that nobody uses, and lose another, again
// and again.
func (c *churn) changeEndpoints(manifests string) error {
	for i := 0; !c.done.Load(); i++ {
		text := servicesOf("2", []string{"7", "8", "9"}[i%3])
		if err := statefile.Replace(filepath.Join(manifests, "services.yaml"), []byte(text)); err != nil { // an agent that starts reads it whole
			return err
		}
		time.Sleep(50 * time.Millisecond)
	}
	return nil
}
