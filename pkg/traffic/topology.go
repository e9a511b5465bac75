// Package traffic makes small networks in network namespaces and traffic to
// try a load balancer with: a node with pods (Topology), servers that say who
// they are (Server), clients in processes and cgroups of their own that count
// answers, failures and time (Client, Job, Result). The demo, the benchmark
// and the tests share it. It knows nothing of BPF.
package traffic

import (
	"errors"
	"fmt"
	"net/netip"
)

// Spec describes a node with pods. All addresses are reached as soon as
// NewTopology returns.
type Spec struct {
	// Name begins the name of every namespace. RemoveStale finds leftovers
	// by it if it ends in the process ID: see RunName.
	Name string
	// NodeAddrs are the addresses of the node itself, on its loopback
	// device, at least one of each family that pods use.
	NodeAddrs []netip.Addr
	Pods      []Pod
}

// Pod is a network namespace behind a veth pair to the node, or what stands
// for a pod on another node: the node routes to it all the same.
type Pod struct {
	Name  string // up to 11 bytes; the device on the node is "hg-" + Name
	Addrs []netip.Addr
}

// Topology is a node and its pods, in network namespaces. The node forwards
// between them and has no way to anywhere else.
type Topology struct {
	Node *Namespace
	pods map[string]*Namespace
}

// NewTopology makes what spec describes. On error nothing is left behind.
func NewTopology(spec Spec) (*Topology, error) {
	t := &Topology{pods: make(map[string]*Namespace)}
	if err := t.build(spec); err != nil {
		return nil, errors.Join(fmt.Errorf("make topology %s: %w", spec.Name, err), t.Close())
	}
	return t, nil
}

// Pod returns the namespace of a pod, nil if the topology has none of the name.
func (t *Topology) Pod(name string) *Namespace { return t.pods[name] }

// Close removes every namespace and with them devices, routes and processes.
// A second call does nothing.
func (t *Topology) Close() error {
	var errs []error
	for name, ns := range t.pods {
		errs = append(errs, ns.Close())
		delete(t.pods, name)
	}
	if t.Node != nil {
		errs = append(errs, t.Node.Close())
		t.Node = nil
	}
	return errors.Join(errs...)
}

func (t *Topology) build(spec Spec) error {
	node, err := NewNamespace(spec.Name + "-node")
	if err != nil {
		return err
	}
	t.Node = node
	if err := node.Do(func() error { return setUpNode(spec.NodeAddrs) }); err != nil {
		return err
	}
	for _, pod := range spec.Pods {
		if err := t.addPod(spec, pod); err != nil {
			return fmt.Errorf("pod %s: %w", pod.Name, err)
		}
	}
	return nil
}

func (t *Topology) addPod(spec Spec, pod Pod) error {
	ns, err := NewNamespace(spec.Name + "-" + pod.Name)
	if err != nil {
		return err
	}
	t.pods[pod.Name] = ns
	if err := ns.Do(setUpSysctls); err != nil {
		return err
	}
	if err := t.Node.Do(func() error { return plug(pod, ns.Path(), spec.NodeAddrs) }); err != nil {
		return err
	}
	if err := ns.Do(func() error { return setUpPod(pod, spec.NodeAddrs) }); err != nil {
		return err
	}
	if err := t.Node.Do(func() error { return awaitDevice(nodeDevice(pod), nil) }); err != nil {
		return err
	}
	return ns.Do(func() error { return awaitDevice(podDevice, pod.Addrs) })
}
