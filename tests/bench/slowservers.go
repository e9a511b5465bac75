package main

import (
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"time"

	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/traffic/load"
	"github.com/headgate/headgate/pkg/traffic/result"
	"github.com/headgate/headgate/pkg/traffic/serve"
)

// slowServers is how many backends the Service has that clients of all algorithms
// ask.
const slowServers = 10

// What the datapath is told: the defaults of the agent.
const (
	ejectAfter = 3
	maxEjected = 50
)

// clientTimeout is when clients have failed.
const clientTimeout = 3 * time.Second

// firstAlgorithmPort is that of the first algorithm: each has a port of the Service,
// and of the servers.
const firstAlgorithmPort = 9000

// algorithms are all that there are.
func algorithms() (all []lb.Algorithm) {
	for a := lb.Random; a <= lb.Latency; a++ {
		all = append(all, a)
	}
	return all
}

func algorithmPort(a lb.Algorithm) uint16 { return firstAlgorithmPort + uint16(a) }

// askedAt is where clients of an algorithm connect to.
func askedAt(a lb.Algorithm) netip.AddrPort {
	return netip.AddrPortFrom(nth(serviceNet4, 1), algorithmPort(a))
}

// servers are the backends, which can be slow and dead.
type servers []*serve.Server

// serverName is what a server answers.
func serverName(i int) string { return fmt.Sprintf("server-%d", i) }

func newServers() (all servers, err error) {
	for i := range slowServers {
		var endpoints []serve.Endpoint
		for _, a := range algorithms() {
			endpoints = append(endpoints, serve.Endpoint{Name: serverName(i), Addr: netip.AddrPortFrom(nth(backendNet4, i+1), algorithmPort(a))})
		}
		s, err := serve.Start(endpoints, serve.Options{Loops: 1})
		if err != nil {
			return nil, errors.Join(err, all.close())
		}
		all = append(all, s)
	}
	return all, nil
}

func (all servers) close() error {
	var errs []error
	for _, s := range all {
		errs = append(errs, s.Close())
	}
	return errors.Join(errs...)
}

// delay has all servers answer that much later.
func (all servers) delay(d time.Duration) {
	for _, s := range all {
		s.SetFaults(serve.Faults{Delay: d})
	}
}

// algorithmGroup makes a group with a Service port for each algorithm, and with
// passive health.
func (b *bench) algorithmGroup() (*group, error) {
	var service []lb.Frontend
	for _, a := range algorithms() {
		at := askedAt(a)
		f := lb.Frontend{Port: a.String(), Policy: lb.Policy{Algorithm: a}}
		f.AddrPort = lb.AddrPort{Addr: at.Addr(), Port: at.Port(), Protocol: lb.TCP}
		for i := range slowServers {
			backend := lb.AddrPort{Addr: nth(backendNet4, i+1), Port: at.Port(), Protocol: lb.TCP}
			f.Views[lb.Internal].Backends = append(f.Views[lb.Internal].Backends, backend)
		}
		service = append(service, f)
	}
	g, err := b.newGroup("slow")
	if err != nil {
		return nil, err
	}
	g.root = filepath.Join(b.bpffs, "slow")
	cfg := g.config(nil)
	cfg.EjectAfter, cfg.MaxEjected = ejectAfter, maxEjected
	return g, bringIn(cfg, 1, func(int) []lb.Frontend { return service })
}

// connectAt has clients of an algorithm connect, so many a second.
func (b *bench) connectAt(a lb.Algorithm, rate int, took time.Duration) (result.Run, error) {
	return load.Run(b.ctx, load.Spec{
		Kind: load.CRR, Targets: []netip.AddrPort{askedAt(a)}, Rate: float64(rate), Duration: took, Interval: took, Timeout: clientTimeout,
		Connections: 2 * rate * int(clientTimeout.Seconds()), Senders: 1, Unbound: true, Unchecked: true, Outside: true,
	}, nil)
}
