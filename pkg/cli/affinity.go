package cli

import (
	"cmp"
	"fmt"
	"net/netip"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/pkg/datapath"
	"github.com/headgate/headgate/pkg/netdev"
	"github.com/headgate/headgate/pkg/plan"
)

// affinity is which backend a client had last, as it is shown.
type affinity struct {
	client  netip.Addr
	service plan.Service
	Client  string `json:"client"`
	Service string `json:"service"`
	Backend string `json:"backend"`
}

func (a affinity) names() []string {
	return []string{fmt.Sprintf("%s-%s", a.Client, a.Service), a.Client}
}

func (a affinity) owners() []plan.Service { return []plan.Service{a.service} }

var affinities = noun[affinity]{
	name: "affinity", kind: "Affinity", short: "clients of Services with session affinity, and the backend that each had last",
	words: "{ADDRESS | [NAMESPACE/]SERVICE[:PORT]}",
	columns: []column[affinity]{
		{title: "CLIENT", of: func(a affinity) any { return a.Client }},
		{title: "SERVICE", of: func(a affinity) any { return a.Service }},
		{title: "BACKEND", of: func(a affinity) any { return a.Backend }},
	},
	read: readAffinities, compare: compareAffinities, passing: true, namespaced: true,
}

func newAffinity(e *env) *cobra.Command { return affinities.command(e) }

func readAffinities(s *sight, do func(*affinity) error) error {
	own, err := datapath.OwnNamespace()
	if err != nil {
		return err
	}
	pods := podAddresses{}
	return s.Affinities(func(a datapath.Affinity) error {
		service, err := s.Service(a.Service)
		if err != nil {
			return err
		}
		one := affinity{client: a.Client, service: service, Client: clientName(a, own, &pods)}
		backend := s.Backend(a.Backend).At
		if service == (plan.Service{}) || backend.Port == 0 {
			return nil // what it was about is gone: nobody asks for it again
		}
		one.Service, one.Backend = service.String(), backend.String()
		return do(&one)
	})
}

// clientName is a client as people know it: a pod is an address of its network namespace.
func clientName(a datapath.Affinity, own uint64, pods *podAddresses) string {
	switch namespace := a.Namespace(); namespace {
	case 0:
		return a.Client.String()
	case own:
		return "this node"
	default:
		if addr := pods.of(namespace); addr.IsValid() {
			return "pod " + addr.String()
		}
		return fmt.Sprintf("network namespace %d", namespace)
	}
}

// podAddresses are the lowest addresses of network namespaces, IPv4 before IPv6, by cookie. All are read at once.
type podAddresses struct{ all map[uint64]netip.Addr }

// of returns the address of a namespace, not valid if it has none, cannot be entered, or is newer than the first call.
func (p *podAddresses) of(namespace uint64) netip.Addr {
	if p.all == nil {
		p.read()
	}
	return p.all[namespace]
}

// ofNew does the same, and reads again for a namespace that it does not know yet.
func (p *podAddresses) ofNew(namespace uint64) netip.Addr {
	addr, known := p.all[namespace]
	if !known {
		p.read()
		addr = p.all[namespace]
		p.all[namespace] = addr // known from now on, if only as one without an address
	}
	return addr
}

func (p *podAddresses) read() {
	if p.all == nil {
		p.all = map[uint64]netip.Addr{}
	}
	_ = datapath.EachNamespace(func(_ string, cookie uint64) error { // those that it can enter
		has, err := netdev.Addresses()
		for a := range has {
			if known := p.all[cookie]; !known.IsValid() || a.Less(known) {
				p.all[cookie] = a
			}
		}
		return err
	})
}

func compareAffinities(a, b affinity) int {
	return cmp.Or(cmp.Compare(a.Service, b.Service), a.client.Compare(b.client))
}
