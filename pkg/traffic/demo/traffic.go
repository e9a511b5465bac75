package demo

import (
	"context"
	"fmt"
	"math"
	"net/netip"
	"time"

	"github.com/headgate/headgate/pkg/traffic/load"
	"github.com/headgate/headgate/pkg/traffic/result"
)

const (
	// patience is how long the demo waits for the end of an operation. Two lost
	// packets of a handshake are repeated within three seconds.
	patience = 5 * time.Second
	// lateAfter is from when on an operation is late. The first repetition of a
	// lost SYN, or of a lost ACK at the end of a handshake, takes a second: what is
	// late is the machine, which had too much to do, and not the load balancer.
	lateAfter = time.Second
)

const (
	demoConnections = 8
	demoPerSocket   = 10 // requests of an unconnected socket
	barWidth        = 30
)

// choices is how often each backend was chosen, for each address that was asked.
type choices map[netip.AddrPort]map[string]uint64

// add adds what came of a load on one address.
func (c choices) add(target netip.AddrPort, run result.Run) {
	if c[target] == nil {
		c[target] = make(map[string]uint64)
	}
	for _, b := range run.Backends {
		c[target][b.Name] += b.Choices
	}
}

func (d *demo) sendTCP(ctx context.Context) error {
	vips := targets(clusterIPs, tcpPort)
	d.stage.tcp = choices{}
	return d.send(ctx, d.stage.tcp, "TCP to "+targetList(vips), d.stage.inside, vips, load.Spec{Kind: load.CRR})
}

func (d *demo) sendUDP(ctx context.Context) error {
	vips := targets(clusterIPs, udpPort)
	d.stage.udp = choices{}
	err := d.send(ctx, d.stage.udp, "UDP, a connected socket each", d.stage.inside, vips, load.Spec{Kind: load.UDP, PerSocket: 1})
	if err != nil {
		return err
	}
	return d.send(ctx, d.stage.udp, "UDP, sockets that are not connected", d.stage.inside, vips, load.Spec{Kind: load.SendTo, PerSocket: demoPerSocket})
}

// sendNodePort connects from the node to all its own addresses.
func (d *demo) sendNodePort(ctx context.Context) error {
	own := append(addrs("127.0.0.1", "::1"), nodeAddrs...)
	chosen := choices{}
	what := fmt.Sprintf("TCP on the node to NodePort %d of each address", tcpNodePort)
	if err := d.send(ctx, chosen, what, d.stage.onNode, targets(own, tcpNodePort), load.Spec{Kind: load.CRR}); err != nil {
		return err
	}
	for target, by := range chosen {
		for _, b := range backends {
			d.expect(by[b.name] > 0, "%s answers at %s", b.name, target)
		}
	}
	return nil
}

// send runs a load on one target after the other, as a step. Nothing may fail;
// what is late is told.
func (d *demo) send(ctx context.Context, sum choices, what string, client *load.Client, to []netip.AddrPort, spec load.Spec) error {
	return d.step(what, func(progress func(string)) (string, error) {
		var done, failed, late uint64
		var took time.Duration
		for _, target := range to {
			progress(target.String())
			spec.Targets, spec.Connections, spec.Duration, spec.CheckPeer = []netip.AddrPort{target}, demoConnections, d.size.load, true
			run, err := client.Run(ctx, inNamespaces(spec), nil)
			if err != nil {
				return "", err
			}
			d.expectNoFailures(run)
			d.expect(run.Completed > 0, "an answer at %s", target)
			sum.add(target, run)
			done, failed, late, took = done+run.Completed, failed+run.Failed, late+lateOf(run), took+run.Elapsed
		}
		rate := float64(done) / max(took.Seconds(), 1e-3)
		return fmt.Sprintf("%s answered, %s failed, %s/s%s", thousands(done), thousands(failed), thousands(uint64(rate)), lateness(late)), nil
	})
}

// inNamespaces returns a load as the demo sends it.
func inNamespaces(spec load.Spec) load.Spec {
	if spec.Timeout == 0 {
		spec.Timeout = patience
	}
	spec.Outside, spec.Unchecked = true, true // no packet leaves what the demo made
	spec.Unbound = true                       // whatever else has a CPU
	return spec
}

// lateOf is how many operations of a run went well and were late.
func lateOf(run result.Run) (late uint64) {
	for _, b := range run.Latency.Buckets() {
		if b.UpTo > lateAfter {
			late += b.Count
		}
	}
	return late
}

// lateness tells of operations that were late, if any were.
func lateness(late uint64) string {
	if late == 0 {
		return ""
	}
	return fmt.Sprintf(", %s took longer than %s", thousands(late), lateAfter)
}

func (d *demo) expectNoFailures(run result.Run) {
	d.expect(run.Failed == 0, "no failure, not %s", run.ErrorText())
}

// showAnswers prints the table of who answered and expects fair shares.
func (d *demo) showAnswers(context.Context) error {
	d.screen.line("")
	d.screen.line("Who answered")
	before := len(d.wrong)
	for i, family := range []string{"IPv4", "IPv6"} {
		d.showShares("TCP "+family, d.stage.tcp[netip.AddrPortFrom(clusterIPs[i], tcpPort)])
	}
	for i, family := range []string{"IPv4", "IPv6"} {
		d.showShares("UDP "+family, d.stage.udp[netip.AddrPortFrom(clusterIPs[i], udpPort)])
	}
	for _, wrong := range d.wrong[before:] {
		d.screen.line("✗ expected: " + wrong)
	}
	d.screen.line("")
	return nil
}

func (d *demo) showShares(title string, chosen map[string]uint64) {
	var total uint64
	for _, count := range chosen {
		total += count
	}
	low, high := fairBounds(len(backends), total)
	for _, b := range backends {
		share := float64(chosen[b.name]) / float64(max(total, 1))
		d.screen.line(fmt.Sprintf("  %-8s  %s  %s  %6s  %5.1f %%  %s",
			title, b.name, b.zone, thousands(chosen[b.name]), 100*share, bar(share, barWidth)))
		d.expect(low <= share && share <= high, "%s answers %.1f to %.1f %% of %s, not %.1f %%",
			b.name, 100*low, 100*high, title, 100*share)
		title = ""
	}
}

// fairBounds returns within which shares of total random choices among n
// backends every backend must stay: a quarter more or less than its due, or
// six standard deviations where few choices make that wider.
func fairBounds(n int, total uint64) (low, high float64) {
	due := 1 / float64(n)
	slack := max(due/4, 6*math.Sqrt(due*(1-due)/float64(max(total, 1))))
	return max(due-slack, 0), min(due+slack, 1)
}
