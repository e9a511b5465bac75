package datapath

import (
	"fmt"
	"os"
)

// Ports are those from the first to the last.
type Ports struct{ First, Last uint16 }

func (p Ports) String() string { return fmt.Sprintf("%d-%d", p.First, p.Last) }

// size is how many ports there are.
func (p Ports) size() uint32 {
	if p.First > p.Last {
		return 0
	}
	return uint32(p.Last) - uint32(p.First) + 1
}

// DefaultSNATPorts are the source ports of flows to backends on other nodes.
var DefaultSNATPorts = Ports{1024, 65535}

// nodePorts are those that Kubernetes gives NodePorts by default.
var nodePorts = Ports{30000, 32767}

// portConstants say which source ports flows to other nodes have.
type portConstants struct {
	First    uint16 `bpf:"snat_first"`
	Ports    uint32 `bpf:"snat_ports"`
	Unshared uint32 `bpf:"snat_unshared"`
}

// constants sets those apart that the node's own sockets choose, and NodePorts: all from
// the first of these on.
func (p Ports) constants() (portConstants, error) {
	local, err := localPorts()
	if err != nil {
		return portConstants{}, err
	}
	unshared := Ports{p.First, min(p.Last, min(local.First, nodePorts.First)-1)}
	return portConstants{First: p.First, Ports: p.size(), Unshared: unshared.size()}, nil
}

// localPorts returns the ports that sockets of this network namespace choose by themselves.
func localPorts() (p Ports, err error) {
	const path = "/proc/sys/net/ipv4/ip_local_port_range"
	b, err := os.ReadFile(path)
	if err != nil {
		return p, fmt.Errorf("read which ports sockets choose: %w", err)
	}
	if _, err := fmt.Sscan(string(b), &p.First, &p.Last); err != nil {
		return p, fmt.Errorf("%s: %q are no ports: %w", path, b, err)
	}
	return p, nil
}
