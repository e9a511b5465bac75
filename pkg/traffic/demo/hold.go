package demo

import (
	"bufio"
	"context"
	"fmt"
)

// holdOn waits for Enter, if asked to, and says what there is to look at.
func (d *demo) holdOn(ctx context.Context) error {
	if d.hold == nil {
		return nil
	}
	s := &d.stage
	d.screen.line("")
	d.screen.line("Held. To look around from another terminal:")
	d.screen.line(fmt.Sprintf("  headgate() { nsenter --net=%s %s --bpf-root %s --state-dir %s \"$@\"; }", s.node().Path(), d.headgate, s.bpfRoot(), s.stateDir()))
	d.screen.line("  headgate status, headgate explain web, headgate top, headgate service list")
	d.screen.line(fmt.Sprintf("  edit %s and watch %s/agent.log", s.manifests(), s.dir))
	d.screen.line(fmt.Sprintf("  a client: echo $$ > %s/cgroup.procs", s.cgroup.Path))
	d.screen.line(fmt.Sprintf("            nsenter --net=%s curl http://%s", s.topology.Namespace(clientPod).Path(), clusterIPs[0]))
	d.screen.line("Enter ends the demo.")
	entered := make(chan struct{})
	go func() {
		_, _ = bufio.NewReader(d.hold).ReadString('\n') // its end counts as Enter
		close(entered)
	}()
	select {
	case <-ctx.Done():
	case <-entered:
	}
	return nil
}
