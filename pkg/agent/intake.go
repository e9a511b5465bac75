package agent

import (
	"net/netip"

	"go.uber.org/zap"

	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/peers"
	"github.com/headgate/headgate/pkg/probe"
	"github.com/headgate/headgate/pkg/reconciler"
)

// intake passes on what watchers find out, to all who need to know. It is there before
// the datapath is: what comes early waits in the inbox.
type intake struct {
	inbox     *reconciler.Inbox
	status    *statusServer
	addresses *nodeAddresses
	devices   *deviceList
	prober    *probe.Prober // nil where nothing is probed
	peers     *peers.Prober // nil where nothing is carried
}

func newIntake(cfg Config, log *zap.Logger, status *statusServer) *intake {
	inbox := reconciler.NewInbox(status.queuedUpdate)
	status.inbox = inbox
	return &intake{
		inbox: inbox, status: status,
		addresses: newNodeAddresses(cfg, inbox.SetNodeAddresses),
		devices:   newDeviceList(cfg, log, inbox.SetDevices, status.problems.setDevices),
		prober:    newProber(cfg, log, inbox, status.problems),
		peers:     newPeers(cfg, inbox, status),
	}
}

// update takes what a source says.
func (in *intake) update(u lb.Update) {
	if u.Node != nil {
		in.status.setNode(*u.Node)
		in.addresses.setNode(*u.Node)
	}
	in.devices.update(u)
	if in.prober != nil {
		in.prober.SetNodeAddresses(u.NodeAddresses)
		if u.ServiceCIDRs != nil {
			in.prober.SetServiceCIDRs(u.ServiceCIDRs)
		}
	}
	if in.peers != nil {
		in.peers.SetNodes(u.Nodes)
	}
	in.inbox.Update(u)
}

// setLocal takes the addresses that the node's devices have.
func (in *intake) setLocal(local map[netip.Addr]bool) {
	in.addresses.setLocal(local)
	if in.prober != nil {
		in.prober.SetNode(local)
	}
}
