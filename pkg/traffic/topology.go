// Package traffic makes small networks in network namespaces (Topology), and what
// processes in them need: cgroups and BPF file systems of their own, and names by
// which the next run finds what a killed one left. The packages below it send
// load, serve it and measure; the demo, the benchmark and tests share them. It
// knows nothing of BPF.
package traffic

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
)

// TopologySpec describes a small network: machines, and links between them. Every
// machine reaches every other one by the shortest way, in both families.
type TopologySpec struct {
	// Name begins the name of every namespace. RemoveStale finds leftovers
	// by it if it ends in the process ID: see RunName.
	Name     string
	Machines []Machine
	Links    []Link
	Client   string   // the machine that load comes from
	Servers  []string // the machines that it goes to
}

// Machine is a network namespace.
type Machine struct {
	Name string // up to 11 bytes: its devices elsewhere are "hg-" + Name
	Zone string
	Node string // of a pod: where it runs; only pods are reached through tunnels
	// Addrs are on its loopback device: exactly one of each family.
	Addrs []netip.Addr
	// Prefixes are its own too, with every address in them: any may be bound
	// to. Load comes from many of them, many servers are on others.
	Prefixes []netip.Prefix
	Forwards bool
	// Gateway is the linked machine that all other addresses are routed to, ""
	// if they have no route.
	Gateway string
}

// Link is a veth pair between two machines, or a VXLAN between two that reach
// each other without it. A tunnel carries what goes to and from pods.
type Link struct {
	A, B string
	// VXLAN is the network identifier of a tunnel, 0 for a veth pair.
	VXLAN int
	MTU   int // 0 means the kernel's choice
}

// Topology is a network that exists.
type Topology struct {
	Spec       TopologySpec
	namespaces map[string]*Namespace
}

// NewTopology makes what spec describes. All addresses are reached as soon as it
// returns. On error nothing is left behind.
func NewTopology(spec TopologySpec) (*Topology, error) {
	p := &Topology{Spec: spec, namespaces: make(map[string]*Namespace)}
	if err := p.build(); err != nil {
		return nil, errors.Join(fmt.Errorf("make topology %s: %w", spec.Name, err), p.Close())
	}
	return p, nil
}

// Namespace returns the namespace of a machine, nil if there is none of the
// name.
func (p *Topology) Namespace(machine string) *Namespace { return p.namespaces[machine] }

// Machine returns what is known of a machine, the zero value if there is none
// of the name.
func (p *Topology) Machine(name string) Machine { return p.Spec.machine(name) }

func (s TopologySpec) machine(name string) Machine {
	i := slices.IndexFunc(s.Machines, func(m Machine) bool { return m.Name == name })
	if i < 0 {
		return Machine{}
	}
	return s.Machines[i]
}

// Device returns the name of the device on a machine that leads to a peer.
func (l Link) Device(peer string) string {
	if l.VXLAN != 0 {
		return "vx-" + peer
	}
	return "hg-" + peer
}

// NextToClient returns the machine that the client is linked to, and its device
// there.
func (p *Topology) NextToClient() (machine, device string) {
	for _, l := range p.Spec.Links {
		if peer, joined := l.other(p.Spec.Client); joined {
			return peer, l.Device(p.Spec.Client)
		}
	}
	return "", ""
}

// Close removes every namespace and with them devices, routes and processes. A
// second call does nothing.
func (p *Topology) Close() error {
	var errs []error
	for name, ns := range p.namespaces {
		errs = append(errs, ns.Close())
		delete(p.namespaces, name)
	}
	return errors.Join(errs...)
}

func (p *Topology) build() error {
	for _, m := range p.Spec.Machines {
		ns, err := NewNamespace(p.Spec.Name + "-" + m.Name)
		if err != nil {
			return err
		}
		p.namespaces[m.Name] = ns
		if err := ns.Do(func() error { return setUpMachine(m) }); err != nil {
			return fmt.Errorf("machine %s: %w", m.Name, err)
		}
	}
	// Tunnels come last: they go over the others.
	for _, tunnels := range []bool{false, true} {
		for _, l := range p.Spec.Links {
			if (l.VXLAN != 0) != tunnels {
				continue
			}
			if err := p.connect(l); err != nil {
				return fmt.Errorf("link %s to %s: %w", l.A, l.B, err)
			}
		}
	}
	for _, m := range p.Spec.Machines {
		routes := p.Spec.routes(m.Name)
		if err := p.namespaces[m.Name].Do(func() error { return addWays(routes) }); err != nil {
			return fmt.Errorf("machine %s: %w", m.Name, err)
		}
	}
	return p.await()
}

// await returns when all devices send and receive.
func (p *Topology) await() error {
	for _, l := range p.Spec.Links {
		for machine, peer := range map[string]string{l.A: l.B, l.B: l.A} {
			if l.VXLAN != 0 {
				continue // up at once: its state is unknown to the kernel
			}
			err := p.namespaces[machine].Do(func() error { return awaitDevice(l.Device(peer), p.Machine(machine).Addrs) })
			if err != nil {
				return fmt.Errorf("machine %s: %w", machine, err)
			}
		}
	}
	return nil
}
