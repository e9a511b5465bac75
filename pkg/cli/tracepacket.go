package cli

import (
	"cmp"
	"fmt"
	"io"
	"net"
	"net/netip"
	"time"

	"github.com/headgate/headgate/pkg/datapath"
	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/plan"
)

// leftOutEvery is how often it is said how many packets are not shown.
const leftOutEvery = 5 * time.Second

// packetTrace is what is shown of packets that programs tell of.
type packetTrace struct {
	what   string
	tracer datapath.PacketTracer
	lost   uint64 // said
	said   time.Time
}

// lookAtTold shows what programs have told of packets since the last look.
func (t *trace) lookAtTold(last bool) error {
	if err := t.refused.look(t, last); err != nil || t.drops {
		return err
	}
	return t.carried.look(t, last)
}

func (p *packetTrace) look(t *trace, last bool) error {
	var fresh []traced
	err := t.env.look(func(r *datapath.Reader) error {
		fresh = nil
		s := &sight{Reader: r, env: t.env}
		return p.tracer.Look(r, func(packet datapath.ToldPacket) error {
			one, err := s.tracedPacket(packet)
			fresh = append(fresh, one)
			return err
		})
	})
	for _, one := range fresh {
		if err == nil {
			err = t.show(one)
		}
	}
	p.sayLost(t.complaints, last)
	return err
}

// sayLost says from time to time how many packets are not shown.
func (p *packetTrace) sayLost(to io.Writer, last bool) {
	lost := p.tracer.Lost()
	if lost == p.lost || !last && time.Since(p.said) < leftOutEvery {
		return
	}
	fmt.Fprintf(to, "%d %s are not shown: there were too many\n", lost-p.lost, p.what)
	p.lost, p.said = lost, time.Now()
}

// tracedPacket puts names to a packet. It is of the Service that its client asked for, or that answers.
func (s *sight) tracedPacket(p datapath.ToldPacket) (one traced, err error) {
	to := func(at netip.AddrPort) lb.AddrPort {
		return lb.AddrPort{Addr: at.Addr(), Port: at.Port(), Protocol: p.Protocol}
	}
	one = traced{At: p.At, Where: p.Hook, Device: deviceName(p.Device), Verdict: p.Verdict, From: endName(p.From), Asked: endName(p.To) + "/" + p.Protocol.String()}
	one.before, one.after = packetEnds{p.Protocol, p.From, p.To}, packetEnds{p.Protocol, p.NowFrom, p.NowTo}
	switch p.Verdict {
	case datapath.Repeated:
		one.NowFrom, one.Got, one.backend = p.NowFrom.String(), to(p.NowTo).String(), to(p.NowTo)
	case datapath.Carried:
		one.NowFrom, one.Got = p.NowFrom.Addr().String(), p.NowTo.Addr().String()
	case datapath.Refused:
		one.Refused = p.Reason
	}
	if p.Service != 0 {
		one.service, err = s.Service(p.Service)
		return one, err
	}
	if one.service, err = s.serviceAt(to(p.To)); err == nil && one.service == (plan.Service{}) {
		one.service, err = s.serviceAt(to(p.NowFrom))
	}
	return one, err
}

// deviceName returns the name of a device of this network namespace, or else its number.
func deviceName(index uint32) string {
	name := ""
	if d, err := net.InterfaceByIndex(int(index)); err == nil {
		name = d.Name
	}
	return cmp.Or(name, fmt.Sprintf("#%d", index))
}

// endName leaves out a port that is not known, as of a fragment.
func endName(at netip.AddrPort) string {
	if at.Port() == 0 {
		return at.Addr().String()
	}
	return at.String()
}

// ofPacket says what became of a packet that is not refused.
func (one traced) ofPacket() string {
	switch one.Verdict {
	case datapath.Repeated:
		return fmt.Sprintf("repeated from %s to %s", one.NowFrom, one.Got)
	case datapath.Carried:
		return fmt.Sprintf("carried from %s to %s", one.NowFrom, one.Got)
	default:
		return "passed to TC"
	}
}
