package main

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/vishvananda/netlink"

	"github.com/headgate/headgate/pkg/datapath"
	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/plan"
	"github.com/headgate/headgate/pkg/traffic"
)

// The Service that is asked through a node has so many backends, a power of two:
// fewer would run out of source ports before flows.
const forwardBackends = 16

var (
	// serverNet4 is where the server has the addresses of backends.
	serverNet4 = netip.MustParseAddr("10.101.0.0")
	// frameNet4 is where the flows of frames come from.
	frameNet4 = netip.MustParseAddr("10.251.0.0")
)

// The machines, and their devices.
const (
	theNode, theClient, theServer, theSender = "node-a", "client", "server", "sender"
	toClient, toServer, toSender             = "hg-client", "hg-server", "hg-sender" // of the node
	toNode                                   = "hg-node-a"                           // of the others
)

// A forwardPath is a node with a client, a sender of frames and a server round
// it, and what the node does to what it forwards.
type forwardPath struct {
	name, key string
	services  int // that the node knows; 0: clients go to the backends themselves
	noFrames  bool
	redirect  bool
	driver    bool                                               // repeats; without TCP, whose sums would be left to devices that there are not
	rules     func(p *forwardPath) (tool string, texts []string) // nil: none

	b        *bench
	missing  string // why it is not measured
	topology *traffic.Topology
	group    *group // with Headgate
	talk     *talk
	frames   *frames
	drivers  *drivers

	connect, exchange, life *kase
	few, many               *frameCase
}

// forwardPaths are what is compared; the first one is what all add to.
func (b *bench) forwardPaths() []*forwardPath {
	most := b.most()
	of := func(n int) string { return map[bool]string{true: "1 Service", false: count(n) + " Services"}[n == 1] }
	paths := []*forwardPath{
		{name: "routing alone", key: "direct"},
		{name: "the kernel's connection tracking alone", key: "conntrack", rules: conntrackRules},
	}
	for i, n := range []int{1, most} {
		key := []string{"1", "many"}[i]
		paths = append(paths,
			&forwardPath{name: "nftables, " + of(n), key: "nftables-" + key, services: n, rules: nftRules},
			&forwardPath{name: "iptables, " + of(n), key: "iptables-" + key, services: n, rules: iptablesRules, noFrames: n > 1},
			&forwardPath{name: "Headgate, " + of(n), key: "headgate-" + key, services: n},
			&forwardPath{name: "Headgate redirects, " + of(n), key: "redirect-" + key, services: n, redirect: true},
		)
	}
	paths = append(paths, &forwardPath{name: "Headgate at the driver, " + of(1), key: "driver-1", services: 1, driver: true})
	for _, p := range paths {
		p.b = b
	}
	return paths
}

// asked is the number of the Service that is asked: rules that are walked meet
// it half-way.
func (p *forwardPath) asked() int { return p.services / 2 }

// target is the address that clients ask, or the first of several.
func (p *forwardPath) target() (first netip.Addr, n int, port uint16) {
	if p.services == 0 {
		return serverNet4, forwardBackends, backendPort
	}
	return nth(serviceNet4, p.asked()), 1, servicePort // targets begin behind the first
}

// build makes the machines and what the node does.
func (p *forwardPath) build() error {
	spec, err := traffic.BuiltinTopology("pair", traffic.RunName("headgate-bench")+"-"+p.key)
	if err != nil {
		return err
	}
	spec.Machines = append(spec.Machines, traffic.Machine{
		Name: theSender, Gateway: theNode, Addrs: []netip.Addr{netip.MustParseAddr("203.0.113.2"), netip.MustParseAddr("2001:db8:c::2")},
		Prefixes: []netip.Prefix{netip.PrefixFrom(frameNet4, 16)},
	})
	spec.Links = append(spec.Links, traffic.Link{A: theNode, B: theSender})
	if p.topology, err = traffic.NewTopology(spec); err != nil {
		return err
	}
	if p.driver {
		if p.drivers, err = newDrivers(p); err != nil {
			return err
		}
	}
	switch {
	case p.rules != nil:
		err = p.loadRules()
	case p.services > 0:
		err = p.startHeadgate()
	}
	if err != nil || p.missing != "" {
		return err
	}
	if !p.driver {
		if p.talk, err = newTalk(p); err != nil || p.noFrames {
			return err
		}
	}
	p.frames, err = newFrames(p)
	return err
}

// startHeadgate has the node balance at the devices.
func (p *forwardPath) startHeadgate() (err error) {
	if p.group, err = p.b.newGroup("forward-" + p.key); err != nil {
		return err
	}
	p.group.root = filepath.Join(p.b.bpffs, p.group.name)
	cfg := p.group.config(nil)
	cfg.Redirect, cfg.XDP, cfg.Flows = p.redirect, p.driver, 1<<19
	return p.topology.Namespace(theNode).Do(func() error {
		d, err := datapath.Open(cfg)
		if err != nil {
			return err
		}
		defer d.Close()
		return p.fill(d)
	})
}

// fill brings the Services into the kernel.
func (p *forwardPath) fill(d *datapath.Datapath) error {
	planner := plan.New(plan.Sizes{})
	node := p.topology.Machine(theNode).Addrs
	ops := planner.SetNodeAddresses(map[netip.Addr]plan.AddressKind{node[0]: plan.NodeAddress, node[1]: plan.NodeAddress})
	for i := range p.services {
		fs := frontends(tcp4, i, 1)
		if i == p.asked() {
			fs = p.askedFrontends()
		}
		more, err := planner.Set(serviceName(i), fs)
		if err != nil {
			return err
		}
		ops = append(ops, more...)
	}
	if err := d.Reserve(planner.Needs()); err != nil {
		return err
	}
	if _, err := d.Apply(ops); err != nil {
		return err
	}
	if err := d.Attach(); err != nil {
		return err
	}
	var devices []plan.Device
	for _, name := range []string{toClient, toServer, toSender} {
		l, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		devices = append(devices, plan.Device{Index: uint32(l.Attrs().Index), Name: name, IP4: node[0], IP6: node[1], XDP: true})
	}
	return d.SetDevices(devices)
}

// askedFrontends are those of the Service that is asked, over TCP and UDP.
func (p *forwardPath) askedFrontends() (out []lb.Frontend) {
	for _, f := range []flavour{tcp4, udp4} {
		f.backend = serverNet4
		one := frontends(f, 0, forwardBackends)[0]
		one.Addr = nth(serviceNet4, p.asked()+1)
		one.Members = one.Views[lb.External].Backends
		out = append(out, one)
	}
	return out
}

// longerThanARun keeps what the kernel tracks from ending between two rounds.
func longerThanARun() error {
	var errs []error
	for _, name := range []string{"nf_conntrack_udp_timeout", "nf_conntrack_udp_timeout_stream"} {
		errs = append(errs, os.WriteFile("/proc/sys/net/netfilter/"+name, []byte("3600"), 0o644))
	}
	return errors.Join(errs...)
}

func (p *forwardPath) close() error {
	var errs []error
	if p.frames != nil {
		errs = append(errs, p.frames.close())
	}
	if p.drivers != nil {
		errs = append(errs, p.drivers.close())
	}
	if p.talk != nil {
		p.talk.close()
	}
	if p.group != nil {
		errs = append(errs, p.b.drop(p.group))
	}
	if p.topology != nil {
		errs = append(errs, p.topology.Close())
	}
	return errors.Join(errs...)
}
