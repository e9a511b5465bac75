package cli

import (
	"cmp"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/headgate/headgate/pkg/datapath"
	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/plan"
)

// driverWhere is where packets at drivers are decided about.
const driverWhere = "driver"

// lostEvery is how often it is said how many packets at drivers are not shown.
const lostEvery = 5 * time.Second

// driverTrace is what is shown of packets at drivers.
type driverTrace struct {
	tracer datapath.DriverTracer
	lost   uint64 // said
	said   time.Time
}

// lookAtDrivers shows what became of packets at drivers since the last look. Of the last look drivers hear that
// it is over.
func (t *trace) lookAtDrivers(last bool) error {
	if t.drops { // drivers refuse nothing
		return nil
	}
	var fresh []traced
	err := t.env.look(func(r *datapath.Reader) error {
		fresh = nil
		s := &sight{Reader: r, env: t.env}
		err := t.drivers.tracer.Look(r, func(p datapath.ToldPacket) error {
			one, err := s.tracedPacket(p)
			fresh = append(fresh, one)
			return err
		})
		if last {
			t.drivers.tracer.Stop(r)
		}
		return err
	})
	for _, one := range fresh {
		if err == nil {
			err = t.show(one)
		}
	}
	t.sayLost(last)
	return err
}

// sayLost says from time to time how many packets at drivers are not shown.
func (t *trace) sayLost(last bool) {
	d := &t.drivers
	lost := d.tracer.Lost()
	if lost == d.lost || !last && time.Since(d.said) < lostEvery {
		return
	}
	fmt.Fprintf(t.complaints, "%d packets at drivers are not shown: there were too many\n", lost-d.lost)
	d.lost, d.said = lost, time.Now()
}

// tracedPacket puts names to a packet at a driver. It is of the Service that its client asked for, or that answers.
func (s *sight) tracedPacket(p datapath.ToldPacket) (one traced, err error) {
	to := func(at netip.AddrPort) lb.AddrPort {
		return lb.AddrPort{Addr: at.Addr(), Port: at.Port(), Protocol: p.Protocol}
	}
	one = traced{At: p.At, Where: driverWhere, Device: deviceName(p.Device), Verdict: p.Verdict, From: p.From.String(), Asked: to(p.To).String()}
	one.before, one.after = packetEnds{p.Protocol, p.From, p.To}, packetEnds{p.Protocol, p.NowFrom, p.NowTo}
	switch p.Verdict {
	case datapath.Repeated:
		one.NowFrom, one.Got, one.backend = p.NowFrom.String(), to(p.NowTo).String(), to(p.NowTo)
	case datapath.Carried:
		one.NowFrom, one.Got = p.NowFrom.Addr().String(), p.NowTo.Addr().String()
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

// atDriver says what became of a packet at a driver.
func (one traced) atDriver() string {
	switch one.Verdict {
	case datapath.Repeated:
		return fmt.Sprintf("repeated from %s to %s", one.NowFrom, one.Got)
	case datapath.Carried:
		return fmt.Sprintf("carried from %s to %s", one.NowFrom, one.Got)
	default:
		return "passed to TC"
	}
}
