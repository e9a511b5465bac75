package cli

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/headgate/headgate/pkg/traffic"
)

// comparison is a row of the latency table: connects of one kind, in both
// families.
type comparison struct {
	title   string
	client  *traffic.Client
	targets [2][]netip.AddrPort // IPv4, IPv6
	latency [2]*traffic.Latency // as targets
}

var demoPercentiles = []float64{50, 99}

// measureConnect times connect() directly and through the Service, in short
// turns, so that whatever else the machine does touches all alike.
func (d *demo) measureConnect(ctx context.Context) error {
	rows := d.comparisons()
	count := d.size.rounds * d.size.batch
	title := fmt.Sprintf("connect() timed %s times each way, in turns of %d", thousands(2*count), d.size.batch)
	err := d.step(title, func(progress func(string)) (string, error) {
		for round := range d.size.rounds {
			progress(fmt.Sprintf("%d of %d turns", round, d.size.rounds))
			for i := range rows {
				if err := d.measure(ctx, &rows[i]); err != nil {
					return "", err
				}
			}
		}
		return "", nil
	})
	if err == nil {
		d.showLatency(rows)
	}
	return err
}

func (d *demo) comparisons() []comparison {
	var direct, service [2][]netip.AddrPort
	for family := range direct {
		service[family] = targets(demoClusterIPs[family:family+1], demoTCPPort)
		for _, b := range demoBackends {
			direct[family] = append(direct[family], netip.AddrPortFrom(b.addrs[family], demoTCPTargetPort))
		}
	}
	rows := []comparison{
		{title: "direct, client outside Headgate's cgroup", client: d.stage.outside, targets: direct},
		{title: "direct, Headgate looks and lets pass", client: d.stage.inside, targets: direct},
		{title: "through the Service", client: d.stage.inside, targets: service},
	}
	for i := range rows {
		rows[i].latency = [2]*traffic.Latency{traffic.NewLatency(), traffic.NewLatency()}
	}
	return rows
}

// measure does one turn of a row.
func (d *demo) measure(ctx context.Context, row *comparison) error {
	for family, latency := range row.latency {
		result, err := row.client.Run(ctx, traffic.Job{
			Kind: traffic.Connect, Targets: row.targets[family], Count: d.size.batch, WarmUp: 5,
		}, nil)
		if err != nil {
			return err
		}
		latency.Add(result.Nanos...)
		d.expectNoFailures(result)
	}
	return nil
}

func (d *demo) showLatency(rows []comparison) {
	d.screen.line("")
	d.screen.line(fmt.Sprintf("  %-42s %9s %9s   %9s %9s", "connect() from the client pod", "IPv4 p50", "p99", "IPv6 p50", "p99"))
	for _, row := range rows {
		text := fmt.Sprintf("  %-42s", row.title)
		for _, latency := range row.latency {
			for _, p := range demoPercentiles {
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
