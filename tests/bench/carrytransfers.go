package main

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/headgate/headgate/pkg/datapath"
	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/plan"
	"github.com/headgate/headgate/pkg/traffic"
	"github.com/headgate/headgate/pkg/traffic/contender"
)

// The nodes where packets come in and where the backend is, and the pod that is the backend.
const (
	theIngress, theHome, theBackend = "node-a", "node-b", "server-2"
	toRouter                        = "hg-router" // of both nodes
)

// A carryWay is how a client gets to the backend.
type carryWay struct {
	name, key string
	to        netip.AddrPort
	down, up  transfers
	state     float64 // bytes of a connection at the ingress
}

// transfers are what moved one way, round by round.
type transfers struct {
	gbit []float64 // in a second
	cpu  []float64 // ms of CPU time for a GiB, of the whole machine
}

// carryNet is a client, a router, nodes that carry, and a backend.
type carryNet struct {
	b        *bench
	topology *traffic.Topology
	groups   map[string]*group // of nodes
	server   *bulkServer
	ways     []*carryWay
}

// carryTransfers measures what a connection to a backend on another node moves, what CPU time that
// takes, and what the ingress keeps of it: carried, by SNAT, and asked for without a Service.
func (b *bench) carryTransfers() (err error) {
	n := &carryNet{b: b, groups: map[string]*group{}}
	defer func() { err = errors.Join(err, n.close()) }()
	if err := b.step("make nodes that carry"); err != nil {
		return err
	}
	if err := n.build(); err != nil {
		return err
	}
	for _, w := range n.ways {
		if w.state, err = n.keptOf(w); err != nil {
			return fmt.Errorf("%s: %w", w.name, err)
		}
	}
	size := int64(b.plan.packets) << 11
	for round := range b.plan.rounds {
		b.progress(fmt.Sprintf("transfers, round %d of %d", round+1, b.plan.rounds))
		for i := range n.ways {
			w := n.ways[(i+round)%len(n.ways)]
			if err := errors.Join(b.ctx.Err(), n.move(w.to, &w.up, size, true), n.move(w.to, &w.down, size, false)); err != nil {
				return fmt.Errorf("%s: %w", w.name, err)
			}
		}
	}
	n.report(size)
	return nil
}

// build makes the machines, with Headgate on both nodes.
func (n *carryNet) build() error {
	spec, err := traffic.BuiltinTopology("zones", traffic.RunName("headgate-bench")+"-carry")
	if err != nil {
		return err
	}
	for i, m := range spec.Machines {
		if m.Name == theIngress { // the router takes it for where the addresses of Services are
			spec.Machines[i].Prefixes = append(m.Prefixes, netip.PrefixFrom(serviceNet4, 16))
		}
	}
	if n.topology, err = traffic.NewTopology(spec); err != nil {
		return err
	}
	backend := n.topology.Machine(theBackend).Prefixes[0].Addr()
	f := tcp4
	f.backend = backend
	carried, snat := carriedFrontend(f, 0, 1, func(int) string { return theHome }), frontends(f, 1, 1)[0]
	snat.Kind, snat.Views, snat.Members = lb.LoadBalancerIP, carried.Views, carried.Members
	for _, node := range []string{theIngress, theHome} {
		if err := n.start(node, carried, snat); err != nil {
			return fmt.Errorf("%s: %w", node, err)
		}
	}
	n.ways = []*carryWay{
		{name: "routing alone", key: "direct", to: netip.AddrPortFrom(nth(backend, 1), backendPort)},
		{name: "SNAT", key: "snat", to: netip.AddrPortFrom(snat.Addr, servicePort)},
		{name: "carried", key: "carried", to: netip.AddrPortFrom(carried.Addr, servicePort)},
	}
	n.server, err = serveBulk(n.topology.Namespace(theBackend))
	return err
}

// start has a node balance at its uplink.
func (n *carryNet) start(node string, services ...lb.Frontend) error {
	g, err := n.b.newGroup("carry-" + node)
	if err != nil {
		return err
	}
	n.groups[node] = g
	g.root = filepath.Join(n.b.bpffs, g.name)
	cfg := g.config(nil)
	cfg.Node, cfg.Flows = node, 1<<16
	carrying(&cfg)
	ours := n.topology.Machine(node).Addrs[0]
	all := neighbours{node, map[string]plan.Node{}}
	for _, name := range []string{theIngress, theHome} {
		all.nodes[name] = nodeAt(name, n.topology.Machine(name).Addrs[0], ours)
	}
	return n.topology.Namespace(node).Do(func() error {
		uplink, err := net.InterfaceByName(toRouter)
		if err != nil {
			return err
		}
		return all.bringIn(cfg, services, plan.Device{Index: uint32(uplink.Index), Name: toRouter, IP4: ours, IP6: n.topology.Machine(node).Addrs[1]})
	})
}

// dial connects from the client.
func (n *carryNet) dial(to netip.AddrPort) (conn net.Conn, err error) {
	err = n.topology.Namespace(theClient).Do(func() error {
		d := net.Dialer{Timeout: 10 * time.Second}
		d.SetMultipathTCP(false)
		conn, err = d.Dial("tcp4", to.String())
		return err
	})
	return conn, err
}

// keptOf opens connections, and returns how many bytes of maps the ingress has for each of them.
func (n *carryNet) keptOf(w *carryWay) (bytes float64, err error) {
	before, err := n.kept()
	if err != nil {
		return 0, err
	}
	conns := n.b.plan.tcpCalls
	for range conns {
		conn, err := n.dial(w.to)
		if err != nil {
			return 0, err
		}
		defer conn.Close()
	}
	after, err := n.kept()
	return (after - before) / float64(conns), err
}

// kept is how many bytes the entries have of all maps of the ingress that packets write to.
func (n *carryNet) kept() (bytes float64, err error) {
	r, err := datapath.Inspect(n.groups[theIngress].root)
	if err != nil {
		return 0, err
	}
	defer r.Close()
	counts, err := r.CountEntries()
	if err != nil {
		return 0, err
	}
	all, err := r.Maps(datapath.Totals{}, counts)
	if err != nil {
		return 0, err
	}
	for _, m := range all {
		bytes += float64(counts[m.Name]) * float64(m.KeyBytes+m.ValueBytes)
	}
	return bytes, nil
}

// move moves so many bytes from the client, or to it.
func (n *carryNet) move(to netip.AddrPort, t *transfers, size int64, up bool) error {
	conn, err := n.dial(to)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(2 * time.Minute)); err != nil {
		return err
	}
	cpus, idle, err := contender.Idle()
	if err != nil {
		return err
	}
	own, began := processTime(), time.Now()
	if err := ask(conn, size, up); err != nil {
		return err
	}
	took := time.Since(began)
	_, idleThen, err := contender.Idle()
	if err != nil {
		return err
	}
	used := max(time.Duration(cpus)*took-(idleThen-idle), processTime()-own) // idle time comes in ticks
	t.gbit = append(t.gbit, float64(size)*8/float64(took.Nanoseconds()))
	t.cpu = append(t.cpu, used.Seconds()*1e3*(1<<30)/float64(size))
	return nil
}

// processTime is the CPU time of all threads of this process.
func processTime() time.Duration {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &t)
	return time.Duration(t.Nano())
}

func (n *carryNet) report(size int64) {
	t := table{
		Title:  "To a backend on another node than the one where packets come in: one TCP connection over IPv4",
		Header: []string{"way", "Gbit/s up", "quartiles", "× SNAT", "CPU up", "× SNAT", "Gbit/s down", "quartiles", "× SNAT", "CPU down", "× SNAT", "bytes of a connection"},
		Note: fmt.Sprintf("Client, router, two nodes and the backend are network namespaces; the client's packets take the way client, router, node, router, home, backend, and answers that are not of SNAT skip the first node. What is carried has outer headers of UDP with a proof. "+
			"Each round moves %s MiB each way. CPU is ms for a GiB: how long CPUs of the machine were not idle, so it has both ends in it, and whatever else ran. "+
			"Bytes of a connection are those of all entries of maps that the node where packets come in has more while %s connections are open, for each of them.", count(int(size>>20)), count(n.b.plan.tcpCalls)),
	}
	snat := n.ways[1]
	for _, w := range n.ways {
		row, key := []string{w.name}, "carry/"+w.key+"/"
		for _, d := range []struct {
			key      string
			is, snat *transfers
		}{{"up", &w.up, &snat.up}, {"down", &w.down, &snat.down}} {
			gbit, cpu := summary(d.is.gbit), summary(d.is.cpu)
			times, timesCPU := ratio(d.is.gbit, d.snat.gbit), ratio(d.is.cpu, d.snat.cpu)
			n.b.report.add(key+d.key, "Gbit/s", gbit)
			n.b.report.add(key+d.key+"_cpu", "ms/GiB", cpu)
			n.b.report.add(key+d.key+"_times_snat", "ratio", times)
			n.b.report.add(key+d.key+"_cpu_times_snat", "ratio", timesCPU)
			row = append(row, tenth(gbit.Median), tenths(gbit), fmt.Sprintf("%.2f", times.Median), ns(cpu), fmt.Sprintf("%.2f", timesCPU.Median))
		}
		n.b.report.value(key+"state", "bytes", w.state)
		t.row(append(row, us(w.state))...)
	}
	n.b.report.table(t)
}

func (n *carryNet) close() error {
	var errs []error
	if n.server != nil {
		errs = append(errs, n.server.Close())
	}
	for _, g := range n.groups {
		errs = append(errs, n.b.drop(g))
	}
	if n.topology != nil {
		errs = append(errs, n.topology.Close())
	}
	return errors.Join(errs...)
}
