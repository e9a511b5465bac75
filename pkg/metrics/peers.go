package metrics

import "github.com/prometheus/client_golang/prometheus"

// Peer is a node that packets are carried to.
type Peer struct {
	Address  string
	Usable   bool
	Carried  uint64 // packets to it
	Received uint64 // packets from it
}

// peers are the metrics of each peer.
type peers struct{ usable, carried *prometheus.Desc }

func newPeers(desc func(name, help string, labels ...string) *prometheus.Desc) peers {
	return peers{
		usable:  desc("headgate_peer_usable", "1 if what begins is carried to the node with an address, else 0: headgate peer list says why not.", "peer"),
		carried: desc("headgate_carried_packets_total", "Packets of clients that were carried, in an outer header, to or from the node with an address.", "peer", "direction"),
	}
}

func (p peers) descs() []*prometheus.Desc { return []*prometheus.Desc{p.usable, p.carried} }

func (p peers) collect(to sink, all []Peer) {
	for _, one := range all {
		usable := 0.0
		if one.Usable {
			usable = 1
		}
		to.gauge(p.usable, usable, one.Address)
		to.counter(p.carried, one.Carried, one.Address, "to")
		to.counter(p.carried, one.Received, one.Address, "from")
	}
}
