package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// drill is one way forth and back, with one mode of kube-proxy.
type drill struct {
	mode     string
	pace     time.Duration
	rate     float64
	programs programs

	*world
	nodes    []*node
	web      *service // whose backends are replaced all the time
	held     *service // whose backends stay
	local    *service // of policy Local, with a health-check NodePort
	leaving  *service // whose backends are replaced at once while kube-proxy is dead
	clients  []*client
	probes   []*probe // of health
	metrics  []*probe // of the port of metrics
	rollouts rollouts // of web
	steps    []*step
	outcomes map[place][]outcome
	late     []string // operations, of which place, in which step
}

// step is a part of the time line.
type step struct {
	name  string
	began time.Time
	told  int    // sockets, as the command says
	lost  string // what it says of connections of clients outside that are
}

// begin begins a step.
func (d *drill) begin(format string, args ...any) *step {
	d.steps = append(d.steps, &step{name: fmt.Sprintf(format, args...), began: time.Now()})
	fmt.Printf("%s  %s: %s\n", time.Now().UTC().Format("15:04:05"), d.mode, d.steps[len(d.steps)-1].name)
	return d.steps[len(d.steps)-1]
}

func (d *drill) run(ctx context.Context) (err error) {
	if d.world, err = newWorld(ctx, d.programs); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.close()) }()
	if err := d.prepare(ctx); err != nil {
		return err
	}
	defer func() {
		for _, s := range []*service{d.web, d.held, d.local, d.leaving} {
			s.close()
		}
	}()
	return d.underLoad(ctx, func() error {
		if err := d.forth(ctx); err != nil {
			return err
		}
		return d.back(ctx)
	})
}

// prepare has Services with backends, and a kube-proxy on each node.
func (d *drill) prepare(ctx context.Context) error {
	if err := d.makeNodes(ctx); err != nil {
		return err
	}
	d.web, d.held, d.local, d.leaving = newServices()
	for _, s := range []*service{d.web, d.held, d.local, d.leaving} {
		if err := s.make(ctx, d.world); err != nil {
			return err
		}
	}
	// A load balancer would choose a node for each connection.
	if err := d.ip(outside, "route", "add", "203.0.113.0/24", "via", nodeAddrs(balancing)[0].String(), "dev", "hg-"+nodeNames[balancing], "onlink"); err != nil {
		return err
	}
	for _, name := range nodeNames {
		n := &node{world: d.world, name: name, mode: d.mode, programs: d.programs}
		d.nodes = append(d.nodes, n)
		if err := n.startKubeProxy(); err != nil {
			return err
		}
	}
	for i, n := range d.nodes {
		if err := d.awaitHealthz(ctx, n, i); err != nil {
			return err
		}
	}
	return nil
}

// awaitHealthz waits until kube-proxy has written rules of both families.
func (d *drill) awaitHealthz(ctx context.Context, n *node, i int) error {
	for {
		r := n.begin("/bin/sh", "-c", "nft list ruleset | grep -c "+map[string]string{"iptables": "KUBE-SEP", "nftables": "endpoint-"}[d.mode])
		if r.wait() == nil && len(strings.TrimSpace(r.out.String())) >= 2 {
			time.Sleep(time.Second) // the other family
			return nil
		}
		select {
		case <-n.kubeProxy.Ended():
			return fmt.Errorf("kube-proxy of %s has ended:\n%s", n.name, n.kubeProxy.Tail())
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// balancing is the node that a load balancer sends connections to.
const balancing = 1

// targets returns where clients ask a node for a Service, inside or outside.
func (d *drill) targets(s *service, node int, inside bool) (all []netip.AddrPort) {
	for _, a := range nodeAddrs(node) {
		all = append(all, netip.AddrPortFrom(a, uint16(s.nodePort)))
	}
	if inside {
		for _, a := range s.ips {
			all = append(all, netip.AddrPortFrom(a, 80))
		}
	}
	if inside || node == balancing {
		all = append(all, netip.AddrPortFrom(netip.MustParseAddr(s.balancer), 80))
	}
	return all
}

// underLoad does something while all loads run and every backend is replaced over and over.
func (d *drill) underLoad(ctx context.Context, do func() error) error {
	start := func(p place, machine, cgroup string) error {
		inside := machine != outside
		c, err := d.startClient(p, machine, cgroup, loadsOf(d.rate, d.targets(d.web, p.node, inside), d.targets(d.held, p.node, inside), d.targets(d.leaving, p.node, inside), d.targets(d.local, p.node, inside)))
		d.clients = append(d.clients, c)
		return err
	}
	var errs []error
	for i, name := range nodeNames {
		errs = append(errs, start(place{"pod of " + name, i, false}, clientOf(name), name), start(place{name, i, false}, name, name),
			start(place{"outside, to " + name, i, true}, outside, outside))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	probing, stop := context.WithCancel(ctx)
	defer stop()
	for i, name := range nodeNames {
		for _, port := range []int{10256, d.local.health} {
			d.probes = append(d.probes, d.startProbe(probing, outside, fmt.Sprintf("%s:%d", name, port), fmt.Sprintf("http://%s:%d/healthz", nodeAddrs(i)[0], port)))
		}
		d.metrics = append(d.metrics, d.startProbe(probing, name, name+":10249", "http://127.0.0.1:10249/healthz"))
	}
	time.Sleep(time.Second) // all sockets are connected
	rolling, halt := context.WithCancel(ctx)
	d.rollouts.over = make(chan struct{})
	var rollErr error
	go func() {
		defer close(d.rollouts.over)
		rollErr = d.web.rollOn(rolling, d.world, d.rollouts.note)
	}()
	d.begin("kube-proxy alone")
	d.rest(ctx)
	err := d.restartKubeProxy(ctx)
	if err == nil {
		err = do()
	}
	halt()
	<-d.rollouts.over
	err = errors.Join(err, rollErr)
	d.begin("end")
	stop()
	d.outcomes = map[place][]outcome{}
	for _, c := range d.clients {
		all, endErr := c.end()
		err = errors.Join(err, endErr)
		d.outcomes[c.place] = all
	}
	for _, p := range slices.Concat(d.probes, d.metrics) {
		<-p.over
	}
	return err
}

// restartKubeProxy shows for how long a node has no health answer while kube-proxy itself is
// restarted: no way back is shorter, since its process starts there, too.
func (d *drill) restartKubeProxy(ctx context.Context) error {
	n := d.nodes[len(d.nodes)-1]
	d.begin("kube-proxy restarted, %s", n.name)
	n.kubeProxy.Stop()
	if err := n.startKubeProxy(); err != nil {
		return err
	}
	d.rest(ctx)
	return nil
}

// rest lets a step last, until backends have been replaced in it, too.
func (d *drill) rest(ctx context.Context) {
	d.wait(ctx, d.pace)
	for began := d.steps[len(d.steps)-1].began; d.rollouts.goOn() && ctx.Err() == nil && d.rollouts.within(began, time.Now()) == 0; {
		d.wait(ctx, 100*time.Millisecond)
	}
}

func (d *drill) wait(ctx context.Context, long time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(long):
	}
}

// forth leads all nodes to Headgate, one after the other.
func (d *drill) forth(ctx context.Context) error {
	for i, n := range d.nodes {
		d.begin("Headgate beside, %s", n.name)
		n.served.from = time.Now() // or a moment later: what is lost while it starts is not kube-proxy's
		if err := n.startAgent(); err != nil {
			return err
		}
		if err := n.awaitAgent(ctx); err != nil {
			return err
		}
		d.rest(ctx)
		s := d.begin("headgate migrate run, %s", n.name)
		r := n.headgate("migrate", "run", "--wait", "2m")
		if err := r.await(ctx, "waits    kube-proxy-ended"); err != nil {
			return err
		}
		s.told = toldIn(r.out.String())
		d.rest(ctx)
		d.begin("kube-proxy ends, %s", n.name)
		if i == 0 {
			n.kubeProxy.Stop()
		} else {
			n.kubeProxy.Kill()
		}
		if err := r.await(ctx, "waits    rules-removed"); err != nil {
			return err
		}
		d.rest(ctx)
		if i == 0 {
			d.begin("backends gone at once, rules stale, %s", n.name)
			if err := d.leaving.replace(ctx, d.world); err != nil {
				return err
			}
			d.rest(ctx)
		}
		d.begin("kube-proxy --cleanup, %s", n.name)
		if err := n.cleanKubeProxy(); err != nil {
			return err
		}
		if err := d.finished(ctx, n, r); err != nil {
			return err
		}
		d.rest(ctx)
	}
	return d.agents(ctx)
}

// finished waits until the command has done what it can: the connections that are held go on,
// and so does the table that keeps them. The command is killed meanwhile, and run again.
func (d *drill) finished(ctx context.Context, n *node, r *running) error {
	if err := r.await(ctx, "waits    connections-ended"); err != nil {
		return err
	}
	r.kill()
	again := n.headgate("migrate", "run", "--wait", "0s")
	if err := again.await(ctx, "waits    connections-ended"); err != nil {
		return err
	}
	<-again.over
	return nil
}

// agents are killed, and upgraded in place.
func (d *drill) agents(ctx context.Context) error {
	for i, n := range d.nodes[:2] {
		flags, what := []string(nil), "agent killed and started"
		if i == 1 {
			flags, what = []string{"--eject-after", "4"}, "agent upgraded in place"
		}
		d.begin("%s, %s", what, n.name)
		if i == 0 {
			n.agent.Kill()
		} else {
			n.agent.Stop()
		}
		if err := n.startAgent(flags...); err != nil {
			return err
		}
		if err := n.awaitAgent(ctx); err != nil {
			return err
		}
		d.rest(ctx)
	}
	return nil
}

// back leads all nodes to kube-proxy.
func (d *drill) back(ctx context.Context) error {
	for _, n := range d.nodes {
		s := d.begin("agent ends, kube-proxy comes, headgate migrate back, %s", n.name)
		n.agent.Stop()
		r := n.headgate("migrate", "back", "--wait", "2m")
		if err := n.startKubeProxy(); err != nil {
			return err
		}
		if err := r.wait(); err != nil {
			return err
		}
		n.served.to = time.Now()
		s.told, s.lost = toldIn(r.out.String()), lostIn(r.out.String())
		d.rest(ctx)
	}
	d.begin("kube-proxy alone again")
	d.rest(ctx)
	return nil
}

// toldIn returns how many sockets a command has told.
func toldIn(said string) (told int) {
	for line := range strings.Lines(said) {
		if _, words, ok := strings.Cut(line, "told "); ok && strings.Contains(line, "acts") || strings.Contains(line, "; told ") {
			_, _ = fmt.Sscan(words, &told)
		}
	}
	return told
}

// lostIn returns what a command says of connections of clients outside that it could not hand over.
func lostIn(said string) string {
	for words := range strings.SplitSeq(said, "; ") {
		if strings.Contains(words, " of clients outside lost: ") {
			return strings.TrimSpace(words)
		}
	}
	return ""
}
