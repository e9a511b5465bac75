package packets

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/pkg/cli"
	"github.com/headgate/headgate/pkg/lb"
)

// TestNewFlowsAreTraced begins flows until headgate trace has ended, so that some of them
// begin while it looks.
func TestNewFlowsAreTraced(t *testing.T) {
	r := newRig(t)
	r.tell(t, story{tell: flowsAreTraced}, cast{v4, r, lb.UDP})
}

func flowsAreTraced(t *testing.T, c cast) {
	vip, empty, local := at(c.vip, 80), at(c.vip2, 80), at(c.local, 8080)
	c.set(t, "web", c.frontend(lb.LoadBalancerIP, vip, local))
	c.set(t, "none", c.frontend(lb.LoadBalancerIP, empty))
	before := c.packet(at(c.client, 1), vip, 0)
	c.becomes(t, "before", in, uplink, before, before.to(before.src, local))
	var out, complaints bytes.Buffer
	ended := make(chan int)
	go func() {
		ended <- cli.Run([]string{"trace", "--for", "700ms", "--bpf-root", c.root, "--state-dir", os.TempDir()}, "v1", &out, &complaints)
	}()
	for port := uint16(2); ; port += 2 {
		select {
		case code := <-ended:
			if code != 0 || complaints.Len() > 0 {
				t.Fatalf("ended with %d: %s", code, complaints.String())
			}
			wantTraced(t, c, out.String())
			return
		default:
			begun := c.packet(at(c.client, port), vip, 0)
			c.becomes(t, "one begins", in, uplink, begun, begun.to(begun.src, local))
			if port%8 == 2 { // far from as many as can be told of
				c.run(t, in, uplink, c.packet(at(c.client, port+1), empty, 0).frame(t))
			}
			time.Sleep(5 * time.Millisecond)
		}
	}
}

// wantTraced wants a line of both kinds, and none of what was there before.
func wantTraced(t *testing.T, c cast, said string) {
	t.Helper()
	joined := strings.Join(strings.Fields(said), " ")
	for _, want := range []string{
		fmt.Sprintf(" %s:80/UDP %s:8080/UDP test/web", c.vip, c.local),
		fmt.Sprintf(" %s:80/UDP refused no_endpoint test/none", c.vip2),
	} {
		if !strings.Contains(joined, want) {
			t.Errorf("no line has %q:\n%s", want, said)
		}
	}
	if strings.Contains(said, at(c.client, 1).String()+" ") {
		t.Errorf("what began before is told:\n%s", said)
	}
}
