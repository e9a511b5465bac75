package agent

import (
	"net/netip"

	"go.uber.org/zap"

	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/probe"
	"github.com/headgate/headgate/pkg/reconciler"
)

// intake passes on what watchers find out, to all who need to know. It is there before
// the datapath is: what comes early waits in the inbox.
type intake struct {
	inbox     *reconciler.Inbox
	answers   *answers
	addresses *nodeAddresses
	devices   *deviceList
	prober    *probe.Prober // nil where nothing is probed
}

func newIntake(cfg Config, log *zap.Logger, answers *answers) *intake {
	inbox := reconciler.NewInbox(answers.queuedUpdate)
	return &intake{
		inbox: inbox, answers: answers,
		addresses: newNodeAddresses(cfg, inbox.SetNodeAddresses),
		devices:   newDeviceList(cfg.PodDevices, log, inbox.SetDevices),
		prober:    newProber(cfg, log, inbox, answers.problems),
	}
}

// update takes what a source says.
func (in *intake) update(u lb.Update) {
	if u.Node != nil {
		in.answers.setNode(*u.Node)
		in.addresses.setNode(*u.Node)
	}
	in.devices.setPods(u.Pods)
	if in.prober != nil {
		in.prober.SetNodeAddresses(u.NodeAddresses)
		if u.ServiceCIDRs != nil {
			in.prober.SetServiceCIDRs(u.ServiceCIDRs)
		}
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
