package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"strings"
)

// forward measures what goes through a node, by Headgate and by others.
func (b *bench) forward() (err error) {
	paths := b.forwardPaths()
	defer func() {
		for _, p := range paths {
			err = errors.Join(err, p.close())
		}
	}()
	for _, p := range paths {
		if err := b.step("make a node with %s", p.name); err != nil {
			return err
		}
		if err := p.build(); err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
	}
	if err := b.forwardTCP(paths); err != nil {
		return err
	}
	return b.forwardFrames(paths)
}

// forwardTCP measures connections.
func (b *bench) forwardTCP(paths []*forwardPath) error {
	var cases []*kase
	for _, p := range paths {
		if p.talk == nil {
			continue
		}
		client := p.topology.Namespace(theClient)
		add := func(what string, o op) *kase {
			k := &kase{name: p.name + ", " + what, in: client, n: b.plan.tcpCalls, op: o}
			cases = append(cases, k)
			return k
		}
		p.connect = add("connect()", connectTCP(p.talk.targets, p.talk.listeners, backendPort))
		p.exchange = add("request", p.talk.exchange)
		p.life = add("connection", p.talk.life)
	}
	if err := b.interleave("TCP", cases, b.plan.rounds); err != nil {
		return err
	}
	b.reportForwardTCP(paths)
	return nil
}

func (b *bench) reportForwardTCP(paths []*forwardPath) {
	t := table{
		Title:  "Through a node: TCP over IPv4, µs",
		Header: []string{"what the node does", "connect()", "added", "quartiles", "request", "added", "quartiles", "connections a second", "× routing"},
		Note: "Client, node and server are network namespaces joined by veth. Clients from elsewhere ask an address of a load balancer, policy Cluster: destination and source are translated, " +
			fmt.Sprintf("the Service has %d backends, all on the server. With more Services than one, rules that are walked meet the one that is asked half-way. ", forwardBackends) +
			"Client and server are one thread, so that a figure is all work on the way and at both ends, and no waking up. A request is 32 bytes and its answer, on an open connection; " +
			"connections a second, of one CPU, are whole ones with one request, from socket() to the end by a reset." + missing(paths),
	}
	direct := paths[0]
	micro := func(s stat) stat { return stat{s.Median / 1000, s.Low / 1000, s.High / 1000, s.Least / 1000} }
	for _, p := range paths {
		if p.talk == nil {
			continue
		}
		key := "forward/" + p.key + "/"
		connect, connectAdded := micro(summary(p.connect.typical)), micro(added(p.connect.typical, direct.connect.typical))
		exchange, exchangeAdded := micro(summary(p.exchange.typical)), micro(added(p.exchange.typical, direct.exchange.typical))
		rate, times := summary(roundByRound(p.life.typical, p.life.typical, func(ns, _ float64) float64 { return 1e9 / ns })), ratio(direct.life.typical, p.life.typical)
		b.report.add(key+"connect", "µs", connect)
		b.report.add(key+"connect_added", "µs", connectAdded)
		b.report.add(key+"request", "µs", exchange)
		b.report.add(key+"request_added", "µs", exchangeAdded)
		b.report.add(key+"connections", "1/s", rate)
		t.row(p.name, tenth(connect.Median), tenth(connectAdded.Median), tenths(connectAdded),
			tenth(exchange.Median), tenth(exchangeAdded.Median), tenths(exchangeAdded), count(int(rate.Median)), fmt.Sprintf("%.2f", times.Median))
	}
	b.report.table(t)
}

// missing says which paths were not measured, and why.
func missing(paths []*forwardPath) string {
	var out []string
	for _, p := range paths {
		if p.missing != "" {
			out = append(out, p.name+" ("+p.missing+")")
		}
	}
	if len(out) == 0 {
		return ""
	}
	return " Not measured: " + strings.Join(out, ", ") + "."
}

// forwardFrames measures UDP frames, after what it takes to make them.
func (b *bench) forwardFrames(paths []*forwardPath) error {
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	var todo []func() error
	var made []float64
	for _, p := range paths {
		if p.frames == nil {
			continue
		}
		p.few, p.many = &frameCase{flows: b.plan.forwarded[0]}, &frameCase{flows: b.plan.forwarded[1]}
		for _, c := range []*frameCase{p.few, p.many} {
			todo = append(todo, func() error {
				if err := p.frames.measure(c, b.plan.packets); err != nil {
					return fmt.Errorf("%s: %w", p.name, err)
				}
				return nil
			})
		}
	}
	todo = append(todo, func() error {
		took, err := paths[0].frames.send(1, b.plan.packets, xdpDrop)
		made = append(made, took/float64(b.plan.packets))
		return err
	})
	rng := rand.New(rand.NewPCG(5, 6))
	rounds := (b.plan.rounds + 2) / 3 // they are long
	for round := range rounds {
		b.progress(fmt.Sprintf("frames, round %d of %d", round+1, rounds))
		for _, i := range rng.Perm(len(todo)) {
			if err := errors.Join(b.ctx.Err(), todo[i]()); err != nil {
				return err
			}
		}
	}
	b.reportForwardFrames(paths, made)
	return nil
}

func (b *bench) reportForwardFrames(paths []*forwardPath, made []float64) {
	few, many := count(b.plan.forwarded[0])+" flows", count(b.plan.forwarded[1])+" flows"
	t := table{
		Title:  "Through a node: UDP frames of 64 bytes, one way, CPU time of a frame, ns",
		Header: []string{"what the node does", few, "quartiles", "× routing", "frames a second", many, "quartiles", "× routing", "frames a second"},
		Note: "Frames of flows that were answered before, in batches of " + fmt.Sprint(liveBatch) + ", each of another flow, made in the kernel (BPF_PROG_TEST_RUN with live frames), by veth through the node to a veth of the server, where they end. " +
			"One thread does all of it, in a third of the rounds. Its time, less what others had of its CPU and less what a frame takes that is made and dropped (" + us(summary(made).Median) + " ns), is from the driver of the sender's device to that of the server's. " +
			"Frames a second, on one CPU, are with their making. What drivers repeat ends in the driver of the server's device, too, and is never a packet of the kernel. Through many Services iptables costs established flows what it costs through one." + missing(paths),
	}
	for _, p := range paths {
		if p.few == nil {
			continue
		}
		cells := []string{p.name}
		for i, c := range []*frameCase{p.few, p.many} {
			key := "forward/" + p.key + "/" + []string{"few", "many"}[i] + "/"
			own, base := added(c.ns, made), [][]float64{paths[0].few.ns, paths[0].many.ns}[i]
			times := ratio(roundByRound(c.ns, made, minus), roundByRound(base, made, minus))
			rate := 1e9 / summary(c.ns).Median
			b.report.add(key+"frame", "ns", own)
			b.report.add(key+"times_routing", "ratio", times)
			b.report.value(key+"per_second", "1/s", rate)
			cells = append(cells, ns(own), spread(own), fmt.Sprintf("%.2f", times.Median), count(int(rate)))
		}
		t.row(cells...)
	}
	b.report.table(t)
}

func minus(a, b float64) float64 { return a - b }

// forwardAims compares the figures of what goes through a node with what was
// asked for.
func (r *report) forwardAims(t *table) {
	many := count(r.plan.scales[len(r.plan.scales)-1]) + " Services"
	for _, k := range []struct{ key, name string }{{"1", "1 Service"}, {"many", many}} {
		r.aim(t, "TCP connect() through a node, added over routing, "+k.name, "forward/headgate-"+k.key+"/connect_added", 2, "%.1f µs")
	}
	r.aim(t, "the same, redirected, 1 Service", "forward/redirect-1/connect_added", 1.5, "%.1f µs")
	for i, k := range []string{"few", "many"} {
		flows := count(r.plan.forwarded[i]) + " flows"
		beside := [2][2]float64{{1.15, 0.95}, {1.3, 1.1}}[i]
		r.aim(t, "a UDP frame through a node over routing, by the stack, "+flows, "forward/headgate-1/"+k+"/times_routing", beside[0], "× %.2f")
		r.aim(t, "the same, redirected", "forward/redirect-1/"+k+"/times_routing", beside[1], "× %.2f")
		r.aim(t, "the same, repeated by the driver", "forward/driver-1/"+k+"/frame", 400, "%.0f ns")
	}
}
