package contender

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/headgate/headgate/pkg/traffic/load"
	"github.com/headgate/headgate/pkg/traffic/result"
	"github.com/headgate/headgate/pkg/traffic/rules"
	"github.com/headgate/headgate/pkg/traffic/serve"
)

// What the servers of a drill say they are.
const (
	Old         = "old"         // the first endpoint of the asked Service
	Replacement = "replacement" // what comes in its place
)

// takenServers are a server that a drill takes away, and the one in its place.
type takenServers struct {
	old, replacement netip.AddrPort
	machines         map[netip.AddrPort]string
	serving          map[netip.AddrPort]*serve.Server
	names            map[netip.AddrPort]string
}

// startTaken puts a server apart in the place of the asked Service's first
// endpoint, and starts another one. Both have addresses that are no other
// Service's.
func (p *Contender) startTaken() error {
	number := asked(p.Spec.Services)
	p.taken = &takenServers{
		machines: make(map[netip.AddrPort]string), serving: make(map[netip.AddrPort]*serve.Server), names: make(map[netip.AddrPort]string),
	}
	for k, name := range []string{Old, Replacement} {
		machine, addrs := p.site.Topology.Spec.ServerAddr(p.Spec.Endpoints*(1+number) + k)
		addr := netip.AddrPortFrom(p.ofFamily(addrs), askedPort)
		p.taken.machines[addr], p.taken.names[addr] = machine, name
		if name == Old {
			p.taken.old, p.services[number].Endpoints[0] = addr, addr
		} else {
			p.taken.replacement = addr
		}
		if err := p.startServer(addr); err != nil {
			return err
		}
		p.undo = append(p.undo, func() error { return p.taken.serving[addr].Close() })
	}
	return nil
}

func (p *Contender) startServer(addr netip.AddrPort) error {
	machine := p.taken.machines[addr]
	server, err := serve.Start([]serve.Endpoint{{Name: p.taken.names[addr], Addr: addr}}, serve.Options{Loops: 1, Within: p.site.Topology.Namespace(machine).Do})
	if err != nil {
		return fmt.Errorf("machine %s: %w", machine, err)
	}
	p.taken.serving[addr] = server
	return nil
}

// Replace puts a server in the place of another one, and returns when the load
// balancer has been told. With grace the old one terminates as a pod does, and
// answers until EndReplaced; without, it ends at once. Without load balancer the
// new one answers on the address of the old one.
func (p *Contender) Replace(_ context.Context, grace bool) error {
	if p.Spec.Name == Direct {
		return p.taken.serving[p.taken.old].Rename(Old, Replacement)
	}
	is := map[bool]membership{true: terminating, false: gone}[grace]
	ended := make(chan error, 1)
	if grace {
		ended <- nil
	} else {
		go func() { ended <- p.taken.serving[p.taken.old].Close() }()
	}
	err := p.changes.edit(asked(p.Spec.Services), func(v *version) {
		v.members[0].is, v.members[len(v.members)-1].is = is, ready
	}).wait()
	return errors.Join(err, <-ended)
}

// EndReplaced ends the server that was replaced, and its Service has it no more.
func (p *Contender) EndReplaced(context.Context) error {
	if p.Spec.Name == Direct {
		return nil
	}
	err := p.taken.serving[p.taken.old].Close()
	return errors.Join(err, p.changes.edit(asked(p.Spec.Services), func(v *version) { v.members[0].is = gone }).wait())
}

// Kill ends the server of the asked Service's first endpoint, and tells nobody:
// silently, so that packets to it vanish, or so that its machine refuses.
func (p *Contender) Kill(_ context.Context, silently bool) error {
	if silently {
		return p.blackhole(netlink.RouteAdd)
	}
	return p.taken.serving[p.taken.old].Close()
}

// blackhole adds or removes the route by which packets to the old server vanish.
func (p *Contender) blackhole(change func(*netlink.Route) error) error {
	route := &netlink.Route{
		Dst:   &net.IPNet{IP: p.taken.old.Addr().AsSlice(), Mask: net.CIDRMask(p.taken.old.Addr().BitLen(), p.taken.old.Addr().BitLen())},
		Table: unix.RT_TABLE_LOCAL, Type: unix.RTN_BLACKHOLE,
	}
	if err := p.site.Topology.Namespace(p.taken.machines[p.taken.old]).Do(func() error { return change(route) }); err != nil {
		return fmt.Errorf("have packets to %s vanish: %w", p.taken.old.Addr(), err)
	}
	return nil
}

// Restart ends the load balancer, politely or with SIGKILL, and starts it again
// after a while. Of rule sets, of which nothing runs, the whole set is applied
// again at the end of it.
func (p *Contender) Restart(ctx context.Context, kill bool, pause time.Duration) error {
	if p.process != nil {
		end := map[bool]func() error{true: p.process.kill, false: p.process.end}[kill]
		if err := end(); err != nil {
			return err
		}
	}
	select {
	case <-ctx.Done():
	case <-time.After(pause):
	}
	switch p.Spec.Name {
	case Direct:
		return nil
	case HeadgateSocket, HeadgateTC, KubeProxyIPTables, KubeProxyNFTables:
		return p.process.begin()
	case IPTables:
		return p.feed(ctx, rules.IPTables(ruled(p.services), netsOf(p.Spec.IPv6).pods), p.iptablesRestore())
	case NFTables:
		table := nftablesTable(p.services[0].Addr.Addr())
		again := append([]string{"table " + table + "\ndelete table " + table + "\n"}, rules.NFTables(ruled(p.services), netsOf(p.Spec.IPv6).pods)...)
		return p.feed(ctx, strings.Join(again, ""), "nft", "-f", "-")
	}
	return p.command(ctx, p.Spec.Hook.Restart)
}

// Restore undoes a drill, and returns when all is as before.
func (p *Contender) Restore(ctx context.Context, vanished bool) error {
	if p.process != nil {
		if err := p.process.ended(); err != nil {
			return fmt.Errorf("%w%s", err, p.processText())
		}
	}
	if p.taken == nil {
		return nil
	}
	if vanished {
		if err := p.blackhole(netlink.RouteDel); err != nil {
			return err
		}
	}
	if err := p.taken.serving[p.taken.old].Close(); err != nil {
		return err
	}
	if err := p.startServer(p.taken.old); err != nil {
		return err
	}
	err := p.changes.edit(asked(p.Spec.Services), func(v *version) {
		for i := range v.members {
			v.members[i].is = ready
		}
		v.members[len(v.members)-1].is = gone
	}).wait()
	if err != nil {
		return err
	}
	return p.awaitAll(ctx)
}

// restoreLimit is how long it may take until a backend that was taken away is one
// like all others again: an ejected backend is tried less and less often.
const restoreLimit = 30 * time.Second

// awaitAll returns when every endpoint of the asked Service answers, and nobody
// else does.
func (p *Contender) awaitAll(ctx context.Context) error {
	spec := load.Spec{
		Kind: load.CRR, Rate: 400, Connections: 16, Duration: 150 * time.Millisecond, Timeout: 300 * time.Millisecond, FIN: true, Unchecked: true,
	}
	var run result.Run
	for limit := time.Now().Add(restoreLimit); time.Now().Before(limit); {
		var err error
		if run, err = p.Run(ctx, spec, true, nil); err != nil || ctx.Err() != nil {
			return err
		}
		var names []string
		for _, b := range run.Backends {
			names = append(names, b.Name)
		}
		if run.Failed == 0 && len(names) == p.Spec.Endpoints && !strings.Contains(strings.Join(names, " "), Replacement) {
			return nil
		}
	}
	return fmt.Errorf("%s with %d Services is not as before after %s: backends %v, %d failed%s",
		p.Spec.Name, p.Spec.Services, restoreLimit, run.Backends, run.Failed, p.processText())
}
