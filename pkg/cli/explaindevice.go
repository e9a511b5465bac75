package cli

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/headgate/headgate/pkg/datapath"
	"github.com/headgate/headgate/pkg/netdev"
)

// arrival is how packets of a client elsewhere come to this node.
type arrival struct {
	devices []datapath.Device
	device  *datapath.Device // whose programs decide, nil for none
	name    string           // of the device without programs by which they come
	lost    error            // the kernel has no route to the client
}

// locate asks the kernel how a client is reached: its packets come by the same device. A client on this node is asked
// by its sockets.
func (a *asker) locate(s *sight) error {
	status, err := s.Status()
	if err != nil || !a.at.IsValid() {
		return err
	}
	a.devices = status.Devices
	by, lost := netdev.ComesBy(a.at.Addr())
	if lost != nil {
		a.lost, a.device = lost, uplink(a.devices, nil)
		return nil
	}
	if a.device = uplink(a.devices, by); a.device != nil {
		return nil
	}
	if here, err := a.isHere(s); here || err != nil {
		return err
	}
	if device, err := net.InterfaceByIndex(int(by[0])); err == nil {
		a.name = device.Name
	}
	return nil
}

// isHere says whether the client is this node, or a pod on it whose sockets have programs. Then these decide. Several such pods
// are an error.
func (a *asker) isHere(s *sight) (bool, error) {
	addr := a.at.Addr()
	here := asker{addrs: []netip.Addr{addr}}
	own, err := netdev.Addresses()
	if err == nil && (own[addr] || addr.IsLoopback()) {
		here.cookie, err = datapath.OwnNamespace()
	} else if err == nil {
		here.pod = "pod " + addr.String()
		var files []string
		if files, _ = here.findNamespace(s.IsBalanced); len(files) > 1 { // those that cannot be entered are no such pod
			return false, fmt.Errorf("--from %s: %d network namespaces on this node have it: name one, as in nsenter --net=%s headgate explain", addr, len(files), files[0])
		} else if len(files) == 0 {
			return false, nil
		}
	}
	if err == nil {
		*a = here
	}
	return err == nil, nil
}

// uplink returns the device on which others reach the node that is one of some, by index, or nil for any. It is nil where none is.
func uplink(all []datapath.Device, some []uint32) *datapath.Device {
	for i, d := range all {
		if !d.Pod && !strings.HasPrefix(d.Name, "#") && len(d.Hooks) > 0 && d.Hooks[0].Attached && (some == nil || slices.Contains(some, d.Index)) {
			return &all[i]
		}
	}
	return nil
}

// leaveAlone says why packets of the client are not balanced.
func (x *explanation) leaveAlone() {
	x.Refused = ""
	if x.asker.name == "" {
		x.Outcome = "nothing is done: no device has programs, so packets from elsewhere are not balanced; name devices with --devices"
		return
	}
	x.Outcome = fmt.Sprintf("nothing is done: packets of this client come by %s, which has no programs, so they are not balanced", x.asker.name)
	x.Remedy = fmt.Sprintf("name %s in --devices, too (headgate device list shows those that have programs); if the client is a pod on this node, ask with --from pod:%s", x.asker.name, x.asker.at.Addr())
}
