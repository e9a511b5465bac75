package cli

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/headgate/headgate/pkg/datapath"
	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/netdev"
	"github.com/headgate/headgate/pkg/plan"
)

// replayCall has the program of sockets decide about a call. Where it cannot be tried the maps
// have to say.
func (x *explanation) replayCall(s *sight, programs *replays) error {
	if x.at.Protocol == lb.SCTP {
		x.Refused, x.Outcome = "", "left alone: of sockets those of TCP and UDP are balanced; packets of SCTP are at devices, as those of --from ADDRESS"
		return nil
	}
	if n := x.asker.netns; strings.HasSuffix(n, "/ns/net") && !s.IsBalanced(n) {
		x.Refused, x.Outcome = "", "left alone: the processes of "+x.asker.pod+" are outside the cgroup whose sockets are balanced"
		x.Remedy = "name a cgroup with --cgroup that has them, or leave the flag out; --pod-devices balances packets at devices of pods"
		return nil
	}
	what, call := "connect()", "connect()"
	if x.at.Protocol == lb.UDP {
		what, call = "datagram", "sendmsg()"
	}
	if part := s.PartOfCgroups(); part != "" && x.asker.netns == "" {
		x.Others = "processes of this node that are outside of cgroup " + part + " (--cgroup) are left alone"
	}
	program, err := programs.ofSockets(s, x.at, x.asker.netns)
	if err == nil {
		err = x.remember(s, program.Replay, datapath.LocalClient(x.asker.cookie, x.at.Addr.Is4()))
	}
	var d datapath.Decision
	if err == nil {
		d, err = program.Decide(x.at)
	}
	if err != nil {
		if bad := x.decideAtConnect(s); bad != nil {
			return bad
		}
		x.Outcome += fmt.Sprintf("; by the maps alone, since it cannot be tried: %s", err)
		return nil
	}
	x.Decided = fmt.Sprintf("at %s by %s", call, program.Program) + otherCode(program.Replay, s.Version())
	x.Refused = d.Reason
	switch {
	case d.Reason != "":
		x.refuse()
	case d.To == netip.AddrPortFrom(x.at.Addr, x.at.Port):
		return x.leaveCall(s, what)
	default:
		x.To = lb.AddrPort{Addr: d.To.Addr(), Port: d.To.Port(), Protocol: x.at.Protocol}.String()
		x.Outcome = fmt.Sprintf("this %s goes to %s", what, x.To)
		return x.tryShares(d, func(int) (datapath.Decision, error) { return program.Decide(x.at) })
	}
	return nil
}

// leaveCall says what becomes of a call that goes where it was meant to go. Nobody answers at an address that only Services have,
// unless it is one of this node, or that of a machine elsewhere.
func (x *explanation) leaveCall(s *sight, what string) error {
	x.Outcome, x.Others = "left alone: "+x.whyAlone(what), ""
	kind, err := s.AddressKind(x.at.Addr)
	if err != nil || x.Frontend != "" || kind&plan.FrontendAddress == 0 {
		return err
	}
	switch way, err := netdev.Way(x.at.Addr); {
	case err != nil:
		x.Outcome = fmt.Sprintf("left alone: a Service has this address and not this port, and the %s fails, since this node has no route to it", what)
	case way != "":
		x.Outcome = fmt.Sprintf("left alone: a Service has this address and not this port, so the %s leaves %s: it fails or gets no answer, unless a machine elsewhere has the address, too", what, way)
	default:
		return nil
	}
	x.Remedy = remedies["no_service_port"](x)
	return nil
}

// whyAlone says why a call goes where it was meant to go.
func (x *explanation) whyAlone(what string) string {
	switch {
	case x.Frontend == "":
		return "no Service has this address and port, so the " + what + " goes there"
	case x.at.Addr.IsLoopback():
		return "to the client this address is itself, not the node"
	case x.Ranges != nil:
		return "which address the client has is not known here, so the ranges are looked at where its packets come in"
	default:
		return "the sockets of this client are not balanced, but its packets are, at its device (--pod-devices)"
	}
}

// mostTried is how many backends are tried, tryFor how long each.
const (
	mostTried = 16
	tryFor    = time.Second
)

// tryBackends connects to the backends, all at once, from where the client is or from this node.
func (x *explanation) tryBackends() {
	var all sync.WaitGroup
	for i := range x.Backends {
		b := &x.Backends[i]
		switch {
		case b.at.Protocol != lb.TCP:
			b.Tried = fmt.Sprintf("not tried: %s has no handshake to wait for", b.at.Protocol)
		case i >= mostTried:
			b.Tried = fmt.Sprintf("not tried: the first %d are", mostTried)
		default:
			all.Go(func() { b.Tried = x.asker.try(b.at) })
		}
	}
	all.Wait()
}

// try connects to a backend, and says what became of that.
func (a asker) try(to lb.AddrPort) string {
	var took time.Duration
	dial := func() error {
		began := time.Now()
		c, err := net.DialTimeout("tcp", netip.AddrPortFrom(to.Addr, to.Port).String(), tryFor)
		if took = time.Since(began); err == nil {
			_ = c.Close() // nothing was written
		}
		return err
	}
	var err error
	if a.netns != "" {
		err = datapath.InNamespace(a.netns, dial)
	} else {
		err = dial()
	}
	var number syscall.Errno
	var late net.Error
	switch {
	case err == nil:
		return fmt.Sprintf("answered in %.1f ms", took.Seconds()*1000)
	case errors.Is(err, syscall.ECONNREFUSED):
		return "refused"
	case errors.As(err, &late) && late.Timeout():
		return fmt.Sprintf("no answer in %s", tryFor)
	case errors.As(err, &number):
		return number.Error()
	default:
		return err.Error()
	}
}
