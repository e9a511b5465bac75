package migrate

import (
	"errors"
	"fmt"
	"os"
	"os/signal"

	"golang.org/x/sys/unix"

	"github.com/headgate/headgate/pkg/datapath"
	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/netdev"
)

// Remove takes Headgate out of the kernel, below a root of BPF pins. Connections of clients
// outside go on: the kernel's connection tracking translates them from then on. Whoever wants
// to end the process meanwhile waits: no new connection gets through amid it.
func Remove(root string) (datapath.Removed, error) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, unix.SIGTERM, unix.SIGINT, unix.SIGHUP)
	defer signal.Stop(signals)
	return datapath.Remove(root, kernel{root})
}

// kernel translates connections once the programs below a root are gone.
type kernel struct{ root string }

var tcpStates = map[datapath.FlowState]netdev.TCPState{
	datapath.FlowHalfOpen: netdev.TCPOpening, datapath.FlowEstablished: netdev.TCPOpen, datapath.FlowClosing: netdev.TCPClosing, datapath.FlowClosed: netdev.TCPClosing,
}

// Forget implements datapath.Successor.
func (kernel) Forget(all []datapath.Connection) error {
	list, _, _ := trackable(all)
	return netdev.ForgetOthers(list)
}

// Take implements datapath.Successor.
func (k kernel) Take(all []datapath.Connection) (left []int, err error) {
	netdev.TrackFromSYN(k.root)
	list, places, left := trackable(all)
	refused, err := netdev.HandOver(list)
	if err == nil && len(refused) == 0 && len(left) > 0 {
		err = errors.New("connection tracking is told of TCP and UDP alone")
	}
	for _, i := range refused {
		left = append(left, places[i])
	}
	return left, err
}

// trackable returns connections as connection tracking has them, and the places of these and
// of all others.
func trackable(all []datapath.Connection) (list []netdev.Connection, places, others []int) {
	for i, c := range all {
		if c.Protocol != lb.TCP && c.Protocol != lb.UDP {
			others = append(others, i) // the kernel would want to know the tags of SCTP
			continue
		}
		list, places = append(list, netdev.Connection{
			Protocol: uint8(c.Protocol), From: c.From, To: c.To, Inside: c.Inside, Backend: c.Backend, Outside: c.Outside, TCP: tcpStates[c.State],
		}), append(places, i)
	}
	return list, places, others
}

// Done implements datapath.Successor.
func (k kernel) Done() error { return netdev.TrackAsBefore(k.root) }

// Said is what Remove has done, in words; nothing where there was nothing to do.
func Said(done datapath.Removed) (words []string) {
	h := done.HandedOver
	if h.Done > 0 {
		words = append(words, "handed "+plural(h.Done, "connection", "connections")+" of clients outside over to the kernel's connection tracking")
	}
	if h.Why != nil {
		words = append(words, fmt.Sprintf("%s of clients outside lost: %v", plural(h.Left, "connection", "connections"), h.Why))
	}
	words = append(words, "told "+plural(done.Told, "connected UDP socket", "connected UDP sockets"))
	if done.Untold != nil {
		words = append(words, "others not: "+done.Untold.Error())
	}
	return words
}
