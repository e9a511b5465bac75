package demo

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/headgate/headgate/pkg/traffic/load"
	"github.com/headgate/headgate/pkg/traffic/result"
)

// comparison is a row of the latency table: connects of one kind, in both
// families.
type comparison struct {
	title   string
	client  *load.Client
	targets [2][]netip.AddrPort  // IPv4, IPv6
	latency [2]*result.Histogram // as targets
}

var percentiles = []float64{50, 99}

// measureConnect times connect() directly and through the Service, in short
// turns, so that whatever else the machine does touches all alike.
func (d *demo) measureConnect(ctx context.Context) error {
	rows := d.comparisons()
	title := fmt.Sprintf("connect() timed three ways, in turns of %s", d.size.turn)
	err := d.step(title, func(progress func(string)) (string, error) {
		var done, late uint64
		for turn := range d.size.turns {
			progress(fmt.Sprintf("%d of %d turns", turn, d.size.turns))
			for i := range rows {
				if err := d.measure(ctx, &rows[i], &done, &late); err != nil {
					return "", err
				}
			}
		}
		for _, row := range rows {
			d.expect(row.latency[0].Count() > 0 && row.latency[1].Count() > 0, "connects %s", row.title)
		}
		return thousands(done) + " times" + lateness(late), nil
	})
	if err == nil {
		d.showLatency(rows)
	}
	return err
}

func (d *demo) comparisons() []comparison {
	var direct, service [2][]netip.AddrPort
	for family := range direct {
		service[family] = targets(clusterIPs[family:family+1], tcpPort)
		for _, b := range backends {
			direct[family] = append(direct[family], netip.AddrPortFrom(b.addrs[family], tcpTargetPort))
		}
	}
	rows := []comparison{
		{title: "direct, client outside Headgate's cgroup", client: d.stage.outside, targets: direct},
		{title: "direct, Headgate looks and lets pass", client: d.stage.inside, targets: direct},
		{title: "through the Service", client: d.stage.inside, targets: service},
	}
	for i := range rows {
		rows[i].latency = [2]*result.Histogram{result.NewHistogram(), result.NewHistogram()}
	}
	return rows
}

// measure does one turn of a row, and counts the connects and those of them that
// were late.
func (d *demo) measure(ctx context.Context, row *comparison, done, late *uint64) error {
	for family, latency := range row.latency {
		run, err := row.client.Run(ctx, inNamespaces(load.Spec{
			Kind: load.Connect, Targets: row.targets[family], Connections: 1, WarmUp: d.size.turn / 10, Duration: d.size.turn,
		}), nil)
		if err != nil {
			return err
		}
		d.expectNoFailures(run)
		latency.Merge(run.Latency)
		*done += run.Completed
		*late += lateOf(run)
	}
	return nil
}

func (d *demo) showLatency(rows []comparison) {
	d.screen.line("")
	d.screen.line(fmt.Sprintf("  %-42s %9s %9s   %9s %9s", "connect() from the client pod", "IPv4 p50", "p99", "IPv6 p50", "p99"))
	for _, row := range rows {
		text := fmt.Sprintf("  %-42s", row.title)
		for _, latency := range row.latency {
			for _, p := range percentiles {
				text += fmt.Sprintf(" %9s", micros(latency.Percentile(p)))
			}
			text += "  "
		}
		d.screen.line(strings.TrimRight(text, " "))
	}
	d.screen.line("")
}

func micros(d time.Duration) string {
	return fmt.Sprintf("%.1f µs", float64(d.Nanoseconds())/1000)
}
