package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/headgate/headgate/pkg/lb"
)

// aims compares the figures with what is asked of them: first what was asked of the datapath
// when it got a flow table of its own, then all else.
func (r *report) aims() []table {
	header := []string{"aim", "before", "wanted", "measured", "least", "result"}
	first := table{
		Title: "Aims", Header: header,
		Note: "Measured is the median of rounds, least the least of them (of packets, of the least with the program and without it); the median says whether an aim is met. " +
			"Before: what Headgate took when these aims were set, on another machine of the same kind. Ratios are of the whole connect(), beside the same ratio without a program: connections to many hosts are slower by themselves. " +
			"What many Services at random cost more is memory that no cache holds: the frontend, the slot and the backend, one after the other.",
	}
	r.packetAims(&first)
	r.connectAims(&first)
	r.forwardAims(&first)
	r.carryAims(&first)
	r.aim(&first, fmt.Sprintf("cold start of %s Services with %d endpoints", count(r.plan.big), endpointsEach), "start/cold", 600, "%.0f ms")
	r.aim(&first, "restart of the same without a change", "start/restart", 250, "%.0f ms")
	r.atLeast(&first, "connections that one client outside holds to one remote backend", "fair/held_connections", heldConnections, "%.0f")
	r.aim(&first, "of 1,000 idle connections, lost to floods of SYNs, datagrams and fragments", "fair/lost_idle_connections", 0, "%.0f")
	r.aim(&first, "of 2,000 idle connections, lost to guessed resets and FINs", "fair/lost_to_guesses", 0, "%.0f")

	others := table{Title: "Other aims", Header: header}
	r.ratioAims(&others)
	for _, a := range []lb.Algorithm{lb.P2C, lb.Latency} {
		key := "slow/" + a.String()
		r.aim(&others, "p99 with one slow backend of ten, "+a.String()+" over random", key+"/slow/times_random", 1.0/3, "× %.2f")
		r.aim(&others, "p99 where all ten are equal, "+a.String()+" over random", key+"/equal/times_random", 1.1, "× %.2f")
	}
	r.trafficAims(&others)
	r.aim(&others, fmt.Sprintf("one endpoint changes among %s Services, p50", count(r.plan.big)), "change/objects/p50", 100, "%.0f µs")
	r.aim(&others, "the same, p99", "change/objects/p99", 100, "%.0f µs")
	r.aim(&others, fmt.Sprintf("%d Services replaced by %d in one update, p50", batchSize, batchSize), "change/batch/p50", 50000, "%.0f µs")
	r.aim(&others, commandsAim+"CPU of the slowest", "commands/slowest", 100, "%.0f ms")
	r.aim(&others, commandsAim+"memory of the largest", "commands/largest", 50, "%.0f MiB")
	r.scaleAims(&others)
	return []table{first, others}
}

// connectAims compares what is added to connect() with what was asked for.
func (r *report) connectAims(t *table) {
	scale := r.plan.scales[len(r.plan.scales)-1]
	most, mostText := fmt.Sprintf("services=%d", scale), count(scale)
	for _, f := range flavours {
		key, one, many := "connect/"+f.key+"/", 100.0, 350.0
		if f.kind == unix.SOCK_STREAM {
			one, many = 300, 0
		}
		r.aim(t, "connect() adds over no program, "+f.name, key+"services=1/added", one, "%.0f ns")
		if many > 0 {
			r.aim(t, "the same, "+mostText+" Services at random", key+most+"/added", many, "%.0f ns")
		} else {
			r.aim(t, "a whole connection adds over no program, "+f.name, "lifetime/"+f.key+"/whole/added", 500, "%.0f ns")
		}
	}
	for _, f := range []flavour{udp4, udp6} {
		r.aim(t, mostText+" Services at random over 1, "+f.name, "connect/"+f.key+"/"+most+"/times_1_service_beside_none", 1.25, "× %.3f")
	}
}

// ratioAims compares what many Services and backends cost more than few.
func (r *report) ratioAims(t *table) {
	const beside = "/times_1_service_beside_none"
	scale := r.plan.scales[len(r.plan.scales)-1]
	most, mostText := fmt.Sprintf("services=%d", scale), count(scale)
	for _, f := range flavours {
		key := "connect/" + f.key + "/"
		if f.kind == unix.SOCK_STREAM {
			r.aim(t, mostText+" Services at random over 1, "+f.name, key+most+beside, 1.25, "× %.3f")
		}
		r.aim(t, mostText+" Services, always the same one, over 1, "+f.name, key+"same"+beside, 1.05, "× %.3f")
		r.aim(t, "1,000 backends over 10, "+f.name, key+"backends=1000"+beside, 1.02, "× %.3f")
	}
}

// commandsAim begins the aims for which the agent is a process.
const commandsAim = "commands: "

// apiServerAim begins the aims for which an API server is needed.
const apiServerAim = "API server: "

// scaleAims compares what is measured from an API server with what was asked for.
func (r *report) scaleAims(t *table) {
	c := r.plan.clusters
	for _, a := range []struct {
		of           shape
		what, figure string
		atMost       float64
		format       string
	}{
		{c[0], "one change at a time, p50", "one/p50", 400, "%.0f µs"},
		{c[0], "the same, p99", "one/p99", 2000, "%.0f µs"},
		{c[0], "the same, p99.9", "one/p99.9", 10000, "%.0f µs"},
		{c[0], "1,000 changes a second, p50", "at1000/p50", 600, "%.0f µs"},
		{c[0], "the same, p99", "at1000/p99", 10000, "%.0f µs"},
		{c[0], "the same, p99.9", "at1000/p99.9", 30000, "%.0f µs"},
		{c[0], "the same, CPU of one core", "at1000/cpu", 25, "%.0f %%"},
		{c[0], "a change behind one that lost a backend with a client, p50", "behind_loss/p50", 2000, "%.0f µs"},
		{c[0], "the same, p99", "behind_loss/p99", 2000, "%.0f µs"},
		{c[0], "a Service of 5,000 rolled, 100 events a second, p99", "rolled/p99", 10000, "%.0f µs"},
		{c[0], "the same, worst", "rolled/worst", 50000, "%.0f µs"},
		{c[0], "the same, CPU of an event", "rolled/cpu_each", 1500, "%.0f µs"},
		{c[0], "every tenth Service replaced at once", "replaced", 100, "%.0f ms"},
		{c[0], "cold start over decoding alone", "times_decoding", 2, "× %.2f"},
		{c[0], "resident at rest", "agent/resident", 80, "%.0f MiB"},
		{c[1], "resident at rest", "agent/resident", 150, "%.0f MiB"},
		{c[2], "resident at rest", "agent/resident", 400, "%.0f MiB"},
		{c[0], "at rest, CPU of one core", "idle", 0.1, "%.2f %%"},
		{c[2], "the same", "idle", 0.1, "%.2f %%"},
		{c[0], "a scrape, CPU", "scrape", 50, "%.0f ms"},
		{c[2], "the same", "scrape", 300, "%.0f ms"},
		{c[2], "ready", "ready", 5000, "%.0f ms"},
		{c[2], "one change at a time, p99", "one/p99", 5000, "%.0f µs"},
		{c[2], "100 changes a second, p99", "at100/p99", 20000, "%.0f µs"},
	} {
		r.aim(t, apiServerAim+a.of.String()+", "+a.what, a.of.key()+a.figure, a.atMost, a.format)
	}
	r.aim(t, apiServerAim+c[0].String()+", resident memory over kube-proxy's", c[0].key()+"memory_beside_kube_proxy", 1, "× %.2f")
}

// aim adds a line. A figure that was not measured is said to be so.
func (r *report) aim(t *table, name, key string, atMost float64, format string) {
	r.compare(t, name, key, "≤ "+fmt.Sprintf(format, atMost), format, func(v float64) bool { return v <= atMost })
}

// atLeast adds a line of a figure that is to be large.
func (r *report) atLeast(t *table, name, key string, least float64, format string) {
	r.compare(t, name, key, "≥ "+fmt.Sprintf(format, least), format, func(v float64) bool { return v >= least })
}

func (r *report) compare(t *table, name, key, wanted, format string, met func(float64) bool) {
	was := "–"
	if v, ok := before[key]; ok {
		was = fmt.Sprintf(format, v)
	}
	f, ok := r.Figures[key]
	switch {
	case !ok:
		t.row(name, was, wanted, "not measured", "–", "–")
	case met(f.Median):
		t.row(name, was, wanted, fmt.Sprintf(format, f.Median), fmt.Sprintf(format, f.Least), "met")
	default:
		t.row(name, was, wanted, fmt.Sprintf(format, f.Median), fmt.Sprintf(format, f.Least), "missed")
		r.missed = append(r.missed, key)
	}
}

// markdown is docs/performance.md.
func (r *report) markdown() string {
	var b strings.Builder
	b.WriteString("# Performance\n\n")
	fmt.Fprintf(&b, "Measured by `%s`, which writes this file. Nothing in it is written by hand.\n", r.Command)
	if r.Quick {
		b.WriteString("\n**A quick run: it shows that the benchmark works. Do not quote its figures.**\n")
	}
	for _, f := range r.Failed {
		fmt.Fprintf(&b, "\n**Not measured: %s.**\n", f)
	}
	m := r.Machine
	b.WriteString("\n| | |\n|---|---|\n")
	for _, l := range [][2]string{
		{"when", m.Time + ", " + r.Took + " long"}, {"CPU", fmt.Sprintf("%s, %d cores", m.CPU, m.Cores)}, {"kernel", m.Kernel},
		{"headgate", m.Version}, {"Go", m.Go}, {"cilium/ebpf", m.Ebpf}, {"load average before, after", m.Load + "; " + m.LoadEnd},
	} {
		fmt.Fprintf(&b, "| %s | %s |\n", l[0], l[1])
	}
	for _, key := range slices.Sorted(maps.Keys(m.System)) {
		fmt.Fprintf(&b, "| %s | %s |\n", key, m.System[key])
	}
	r.missed = nil
	aims := r.aims()
	r.writeSection(&b, aims[0])
	r.writeFloors(&b)
	for _, t := range aims[1:] {
		r.writeSection(&b, t)
	}
	b.WriteString(strings.ReplaceAll(method, "ROUNDS", fmt.Sprint(r.Rounds)))
	for _, t := range r.Tables {
		r.writeSection(&b, t)
	}
	return b.String()
}

// writeSection writes a table with its title and what is to be said of it.
func (r *report) writeSection(b *strings.Builder, t table) {
	fmt.Fprintf(b, "\n## %s\n\n", t.Title)
	t.writeMarkdown(b)
	if t.Note != "" {
		fmt.Fprintf(b, "\n%s\n", t.Note)
	}
}

func (t table) writeMarkdown(b *strings.Builder) {
	fmt.Fprintf(b, "| %s |\n|---|%s\n", strings.Join(t.Header, " | "), strings.Repeat("---:|", len(t.Header)-1))
	for _, row := range t.Rows {
		fmt.Fprintf(b, "| %s |\n", strings.Join(row, " | "))
	}
}

// method says how the figures came about.
const method = `
## Method

Everything runs on one machine, in a network namespace, mounts and a cgroup of its own. Each case has a cgroup below that with its programs:
none, an empty one (it returns at once) on the same hooks, or Headgate as it ships. A case is measured in ROUNDS rounds; each round has a batch of
every case of its table, in an order of its own, so that other load meets all of them. A batch gives its p99 and its typical call: the
mean of the half of the calls in the middle, a median that is finer than the ticks of the clock (10 ns on some machines). A figure is the median of the
rounds; "added" and "over empty" are medians of the differences of typical calls within a round, and the quartiles are theirs. Ratios likewise.
Absolute figures belong to this machine; read differences and ratios.

The calls are raw system calls on a thread of its own, without preemption signals and without garbage collection during a batch. Each
call is timed by itself; what reading the clock costs is taken off.

UDP connect() is the cost of the hook alone: one socket connects again and again, nothing is sent, the kernel looks for the route and notes
the peer. TCP connect() goes over loopback to a server in the same thread, which accepts each connection before the next; only connect() is timed, both
ends close by a reset. All addresses, of Services and of backends, are local to the namespace by one route, so that the way without a program is the same as with one.
"At random" means every Service once in random order, then again: with 30,000 of them no cache of the CPU holds what was used last time.
Every Service has backends of its own.
`
