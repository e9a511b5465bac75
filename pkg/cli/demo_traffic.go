package cli

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/headgate/headgate/pkg/traffic"
)

const (
	demoWorkers   = 8
	demoPerSocket = 10 // datagrams from one unconnected socket
	barWidth      = 30
)

func (d *demo) sendTCP(ctx context.Context) error {
	vips := targets(demoClusterIPs, demoTCPPort)
	return d.send(ctx, &d.stage.tcp, "TCP connections to "+targetList(vips), d.stage.inside,
		traffic.Job{Kind: traffic.TCP, Targets: vips, Count: d.size.connections, Workers: demoWorkers})
}

func (d *demo) sendUDP(ctx context.Context) error {
	vips := targets(demoClusterIPs, demoUDPPort)
	half := d.size.datagrams / 2
	err := d.send(ctx, &d.stage.udp, "UDP datagrams, a connected socket each", d.stage.inside,
		traffic.Job{Kind: traffic.UDPConnected, Targets: vips, Count: half, Workers: demoWorkers})
	if err != nil {
		return err
	}
	return d.send(ctx, &d.stage.udp, "UDP datagrams, unconnected sockets", d.stage.inside,
		traffic.Job{Kind: traffic.UDPUnconnected, Targets: vips, Count: half, Workers: demoWorkers, PerSocket: demoPerSocket})
}

// sendNodePort connects from the node to all its own addresses.
func (d *demo) sendNodePort(ctx context.Context) error {
	own := append(addrs("127.0.0.1", "::1"), demoNodeAddrs...)
	var result traffic.Result
	err := d.send(ctx, &result, fmt.Sprintf("TCP connections on the node to NodePort %d of each address", demoTCPNodePort),
		d.stage.onNode, traffic.Job{
			Kind: traffic.TCP, Targets: targets(own, demoTCPNodePort),
			Count: d.size.nodePort * len(own), Workers: demoWorkers,
		})
	if err != nil {
		return err
	}
	for _, b := range demoBackends {
		answers := result.Answers(func(netip.AddrPort) bool { return true })
		d.expect(answers[b.name] > 0, "%s answers at the NodePort", b.name)
	}
	return nil
}

// send runs a job as a step and adds what came of it to total. Nothing may
// fail.
func (d *demo) send(ctx context.Context, total *traffic.Result, what string, client *traffic.Client, job traffic.Job) error {
	return d.step(thousands(job.Count)+" "+what, func(progress func(string)) (string, error) {
		start := time.Now()
		result, err := client.Run(ctx, job, func(done int) {
			progress(fmt.Sprintf("%s (%s/s)", thousands(done), perSecond(done, start)))
		})
		if err != nil {
			return "", err
		}
		total.Add(result)
		d.expectNoFailures(result)
		return fmt.Sprintf("%s failed, %s/s", thousands(result.Failed()), perSecond(job.Count, start)), nil
	})
}

func (d *demo) expectNoFailures(result traffic.Result) {
	failures := result.Failures()
	for _, reason := range slices.Sorted(maps.Keys(failures)) {
		d.expect(false, "no failure, not %s times %s", thousands(failures[reason]), reason)
	}
}

// showAnswers prints the table of who answered and expects fair shares.
func (d *demo) showAnswers(context.Context) error {
	is4 := func(target netip.AddrPort) bool { return target.Addr().Is4() }
	is6 := func(target netip.AddrPort) bool { return target.Addr().Is6() }
	d.screen.line("")
	d.screen.line("Who answered")
	before := len(d.wrong)
	d.showShares("TCP IPv4", d.stage.tcp.Answers(is4))
	d.showShares("TCP IPv6", d.stage.tcp.Answers(is6))
	d.showShares("UDP IPv4", d.stage.udp.Answers(is4))
	d.showShares("UDP IPv6", d.stage.udp.Answers(is6))
	for _, wrong := range d.wrong[before:] {
		d.screen.line("✗ expected: " + wrong)
	}
	d.screen.line("")
	return nil
}

func (d *demo) showShares(title string, answers map[string]int) {
	total := 0
	for _, count := range answers {
		total += count
	}
	low, high := traffic.FairBounds(len(demoBackends), total)
	for _, b := range demoBackends {
		share := float64(answers[b.name]) / float64(max(total, 1))
		d.screen.line(fmt.Sprintf("  %-8s  %s  %s  %6s  %5.1f %%  %s",
			title, b.name, b.zone, thousands(answers[b.name]), 100*share, traffic.Bar(share, barWidth)))
		d.expect(low <= share && share <= high, "%s answers %.1f to %.1f %% of %s, not %.1f %%",
			b.name, 100*low, 100*high, title, 100*share)
		title = ""
	}
}

func perSecond(done int, start time.Time) string {
	return thousands(int(float64(done) / time.Since(start).Seconds()))
}
