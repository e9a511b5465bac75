package contender

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/headgate/headgate/pkg/traffic/load"
	"github.com/headgate/headgate/pkg/traffic/serve"
)

// startSite makes the topology, its servers and the client.
func (p *Contender) startSite() (err error) {
	p.site, err = load.NewSite(load.SiteSpec{
		Topology: p.Spec.Topology, RunName: p.Spec.RunName, Servers: p.Spec.Endpoints, Port: askedPort, Cgroup: p.cgroup,
		Worker: p.Spec.Worker,
	})
	if err != nil {
		return err
	}
	topology := p.site.Topology
	p.node, _ = topology.NextToClient()
	p.services = newServices(topology.Spec, p.Spec)
	if p.Spec.Drill {
		if err := p.startTaken(); err != nil {
			return errors.Join(err, p.site.Close())
		}
	}
	p.changes = p.newChanges()
	for _, machine := range topology.Spec.Servers {
		server, err := serve.Start(p.wildcards(machine), serve.Options{Within: topology.Namespace(machine).Do})
		if err != nil {
			return errors.Join(fmt.Errorf("machine %s: %w", machine, err), p.site.Close())
		}
		p.undo = append(p.undo, server.Close)
	}
	return nil
}

// ofFamily is the address of the contender's family, of one of IPv4 and one of IPv6.
func (p *Contender) ofFamily(addrs []netip.Addr) netip.Addr {
	if p.Spec.IPv6 {
		return addrs[1]
	}
	return addrs[0]
}

// wildcards are the servers of all Services but the asked one.
func (p *Contender) wildcards(machine string) []serve.Endpoint {
	unspecified := netip.IPv4Unspecified()
	if p.Spec.IPv6 {
		unspecified = netip.IPv6Unspecified()
	}
	var all []serve.Endpoint
	for i := range (p.Spec.Services+1)*p.Spec.Endpoints/addressesATopology + 1 {
		all = append(all, serve.Endpoint{Name: machine, Addr: netip.AddrPortFrom(unspecified, uint16(wildcardPort+i))})
	}
	return all
}

// bringUp brings up the load balancer, and notes what that took.
func (p *Contender) bringUp(ctx context.Context) error {
	before, err := kernelMemory()
	if err != nil {
		return err
	}
	began := time.Now()
	if err := p.balance(ctx); err != nil {
		return err
	}
	if err := p.await(ctx); err != nil || p.Spec.Name == Direct {
		return err
	}
	p.memory.BringUp = time.Since(began)
	after, err := kernelMemory()
	p.memory.Kernel = after - before
	return err
}

// await returns when the first, the asked and the last Service answer.
func (p *Contender) await(ctx context.Context) error {
	to := targets(p.services, true, p.Spec.Name == Direct)
	kind := load.UDP // its Services but the asked one have no servers that answer
	if !p.Spec.UDP {
		kind = load.CRR
	}
	if p.Spec.Name != Direct && !p.Spec.UDP {
		to = append(to, p.services[0].Addr, p.services[len(p.services)-1].Addr)
	}
	spec := load.Spec{Kind: kind, Targets: to, Timeout: 300 * time.Millisecond, Duration: 10 * time.Millisecond, Connections: 1, FIN: true, Outside: true}
	for limit := time.Now().Add(p.Spec.Ready); ; {
		_, err := p.site.Client.Run(ctx, spec, nil)
		if err == nil || ctx.Err() != nil {
			return ctx.Err()
		}
		if time.Now().After(limit) {
			return fmt.Errorf("no answer after %s: %w%s", p.Spec.Ready, err, p.processText())
		}
		select {
		case <-ctx.Done():
		case <-time.After(100 * time.Millisecond):
		}
	}
}
