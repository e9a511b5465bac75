// Command bench measures Headgate on this machine, beside no program and an
// empty program, in one run: `make bench`. It does so in a network namespace,
// mounts and a cgroup of its own, which are gone when it ends.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime/pprof"
	"strings"
	"syscall"
	"time"

	"github.com/headgate/headgate/tests/testenv"
)

// options are what a run is told.
type options struct {
	quick    bool
	json     string
	markdown string
	only     string
	against  string
	profile  string
	repo     string
	agent    string   // the program, "" to build it
	cluster  shape    // the zero shape for all
	args     []string // as given, for the record
	plan     effort
}

// effort is how much is measured.
type effort struct {
	rounds   int   // interleaved rounds
	calls    int   // UDP calls in a batch, of which a round has one for each case
	tcpCalls int   // the same for TCP
	scales   []int // Services, ascending
	big      int   // Services in the parts about the agent
	changes  int   // of one endpoint
	saves    int   // of a file
	starts   int   // cold starts and restarts
	packets  int   // in a batch
	flows    []int // of packets, powers of two
	// forwarded are the flows of frames through a node: few and many, powers of two.
	forwarded [2]int

	clusters    []shape // of API servers
	scaleStarts int     // cold starts of each
	steady      time.Duration
	// kubeProxyTime is how long kube-proxy may take to program a cluster.
	kubeProxyTime time.Duration

	slowRate   int // connections in a second by each algorithm, with a slow and a dead backend
	slowTime   time.Duration
	slowRounds int
}

var (
	fullEffort = effort{rounds: 21, calls: 12000, tcpCalls: 1500, scales: []int{1, 1000, 10000, 30000}, big: 10000, changes: 600, saves: 60, starts: 7, packets: 1 << 18, flows: []int{1, 1 << 10, 1 << 16, 1 << 20}, forwarded: [2]int{1 << 10, 1 << 16},
		clusters: []shape{{10000, 1, 10}, {1000, 5, 100}, {100000, 1, 5}}, scaleStarts: 3, steady: 30 * time.Second, kubeProxyTime: 5 * time.Minute,
		slowRate: 500, slowTime: 4 * time.Second, slowRounds: 5}
	quickEffort = effort{rounds: 3, calls: 3000, tcpCalls: 300, scales: []int{1, 1000}, big: 1000, changes: 50, saves: 8, starts: 2, packets: 1 << 16, flows: []int{1, 1 << 10, 1 << 16}, forwarded: [2]int{1 << 10, 1 << 16},
		clusters: []shape{{1000, 1, 10}, {100, 5, 100}, {5000, 1, 5}}, scaleStarts: 1, steady: 3 * time.Second, kubeProxyTime: 30 * time.Second,
		slowRate: 200, slowTime: time.Second, slowRounds: 1}
)

func main() {
	if os.Getenv(commandVar) != "" {
		if err := runCommand(os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
			os.Exit(1)
		}
		return
	}
	if kubeconfig := os.Getenv(decodeVar); kubeconfig != "" {
		if err := decodeAll(context.Background(), kubeconfig); err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
			os.Exit(1)
		}
		return
	}
	o, err := parse(os.Args[1:])
	if err != nil {
		os.Exit(2)
	}
	if os.Geteuid() != 0 {
		fmt.Fprintln(os.Stderr, "bench: needs root, for BPF and network namespaces: sudo make bench")
		os.Exit(1)
	}
	// The inner process inherits it: preemption signals interrupt system calls.
	if err := os.Setenv("GODEBUG", "asyncpreemptoff=1"); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
	// A Ctrl-C reaches the inner process, too: it cleans up, this one waits.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(testenv.Main(&run{ctx, o}))
}

func parse(args []string) (options, error) {
	o := options{plan: fullEffort, args: args}
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.BoolVar(&o.quick, "quick", false, "only see whether it works: few Services, few rounds, no figures to trust")
	f.StringVar(&o.json, "json", "", "write every figure to this file")
	f.StringVar(&o.markdown, "markdown", "", "write the tables to this file, such as docs/performance.md")
	f.StringVar(&o.only, "only", "", "measure only these sections, separated by commas: "+strings.Join(sectionNames(), ","))
	f.StringVar(&o.against, "against", "", "measure nothing but this compiled object beside the one built in, as before beside after; -only takes sockets, runs, packets and carry then")
	f.StringVar(&o.profile, "cpuprofile", "", "write a CPU profile to this file")
	rounds := f.Int("rounds", 0, "measure so many rounds instead of the usual number")
	f.Func("cluster", "of the section scale measure only this cluster: Services, slices of each and endpoints in a slice, such as 10000x1x10", o.setCluster)
	f.StringVar(&o.agent, "agent", "", "measure this agent's program in place of one built from the repository, as before beside after")
	f.StringVar(&o.repo, "repo", ".", "the repository, to build the agent from")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	if o.quick {
		o.plan = quickEffort
	}
	if *rounds > 0 {
		o.plan.rounds = *rounds
	}
	return o, nil
}

// setCluster takes the one cluster that the section scale is to measure.
func (o *options) setCluster(value string) error {
	c := &o.cluster
	if n, err := fmt.Sscanf(value, "%dx%dx%d", &c.services, &c.slices, &c.endpoints); n < 3 || err != nil || min(c.services, c.slices, c.endpoints) < 1 {
		return errors.New("want three numbers, such as 10000x1x10")
	}
	return nil
}

// wants says whether a section is to be measured.
func (o options) wants(section string) bool {
	return o.only == "" || strings.Contains(","+o.only+",", ","+section+",")
}

// run is a run of the benchmark. It implements testenv.Runner.
type run struct {
	ctx context.Context
	options
}

// Run measures and returns the exit code.
func (r *run) Run() int {
	if err := r.measure(); err != nil {
		if errors.Is(err, context.Canceled) {
			err = errors.New("interrupted")
		}
		fmt.Fprintln(os.Stderr, "bench:", err)
		return 1
	}
	return 0
}

// A section measures one thing and adds it to the report.
type section struct {
	name    string
	measure func(*bench) error
}

// The parts about sockets come first: the others leave a large heap behind.
var sections = []section{
	{"connect", (*bench).connect},
	{"lifetime", (*bench).lifetime},
	{"traffic", (*bench).traffic},
	{"datagram", (*bench).datagram},
	{"programs", (*bench).programs},
	{"algorithms", (*bench).algorithms},
	{"slow", (*bench).slow},
	{"change", (*bench).change},
	{"start", (*bench).start},
	{"memory", (*bench).memory},
	{"commands", (*bench).commands},
	{"packets", (*bench).packets},
	{"floor", (*bench).floor},
	{"fair", (*bench).fair},
	{"forward", (*bench).forward},
	{"carry", (*bench).carry},
	{"scale", (*bench).scale},
}

func sectionNames() (names []string) {
	for _, s := range sections {
		names = append(names, s.name)
	}
	return names
}

func (r *run) measure() (err error) {
	began := time.Now()
	stop, err := profileTo(r.profile)
	if err != nil {
		return err
	}
	defer stop()
	b, err := newBench(r.ctx, r.options)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	fmt.Println(b.report.Machine)
	todo := sections
	if r.against != "" {
		todo = []section{{"against", (*bench).compareObjects}}
	}
	var failed []error
	for _, s := range todo {
		if r.against == "" && !r.wants(s.name) {
			continue
		}
		if err := b.section(s); err != nil {
			failed = append(failed, err)
		}
		if r.ctx.Err() != nil {
			break
		}
	}
	b.report.finish(r.options, time.Since(began))
	if r.only == "" && r.against == "" {
		for _, t := range b.report.aims() {
			fmt.Println(t.text())
		}
	}
	return errors.Join(append(failed, b.report.write(r.options))...)
}

// section measures one thing and prints it. If it fails, what the others have
// measured stands, and the report says which one is missing.
func (b *bench) section(s section) error {
	b.name, b.began = s.name, time.Now()
	from := len(b.report.Tables)
	if err := s.measure(b); err != nil {
		err = fmt.Errorf("%s: %w", s.name, err)
		b.report.Tables = b.report.Tables[:from]
		b.report.Failed = append(b.report.Failed, err.Error())
		return err
	}
	b.progress("")
	for _, t := range b.report.Tables[from:] {
		fmt.Println(t.text())
	}
	return nil
}

// profileTo profiles the process until the function that it returns is called.
func profileTo(file string) (stop func(), err error) {
	if file == "" {
		return func() {}, nil
	}
	f, err := os.Create(file)
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return func() { pprof.StopCPUProfile(); _ = f.Close() }, nil
}
