package cli

import (
	"cmp"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"

	"github.com/headgate/headgate/pkg/agent"
	"github.com/headgate/headgate/pkg/datapath"
	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/netdev"
)

// replays are the programs that clients are given to, each loaded once.
type replays struct {
	device  *datapath.Replay
	sockets map[string]socketReplay // by protocol and family
}

// socketReplay is a program of sockets, or why it cannot be loaded: that takes some tenths of a second, too.
type socketReplay struct {
	*datapath.SocketReplay
	err error
}

func (r *replays) close() {
	if r.device != nil {
		r.device.Close()
	}
	for _, p := range r.sockets {
		if p.err == nil {
			p.Close()
		}
	}
}

// ofDevice returns the program of a device, without the flows of the address before.
func (r *replays) ofDevice(s *sight) (_ *datapath.Replay, err error) {
	if r.device != nil {
		return r.device, r.device.Forget()
	}
	r.device, err = s.NewReplay(deviceProgram)
	return r.device, err
}

// ofSockets returns the program that decides about a socket that asks an address.
func (r *replays) ofSockets(s *sight, at lb.AddrPort, netns string) (*datapath.SocketReplay, error) {
	key := fmt.Sprint(at.Protocol, at.Addr.Is4())
	if p, tried := r.sockets[key]; tried {
		return p.SocketReplay, p.err
	}
	caller := exec.Command("/proc/self/exe", makeCalls)
	caller.Args[0] = os.Args[0]
	if r.sockets == nil {
		r.sockets = map[string]socketReplay{}
	}
	var p socketReplay
	p.SocketReplay, p.err = s.NewSocketReplay(at.Protocol, at.Addr.Is4(), netns, caller)
	r.sockets[key] = p
	return p.SocketReplay, p.err
}

// deviceProgram is the program at which packets come in that have an Ethernet header: it
// decides as those of other devices do.
const deviceProgram = "device_in"

// replay has the program of a device decide.
func (x *explanation) replay(s *sight, programs *replays) error {
	device := x.asker.device
	if device == nil {
		x.leaveAlone()
		return nil
	}
	x.Decided = fmt.Sprintf("packet by packet, at %s by %s", device.Name, deviceProgram)
	program, err := programs.ofDevice(s)
	if err != nil {
		return err
	}
	x.Decided += otherCode(program, s.Version())
	if err := x.remember(s, program, x.asker.at.Addr()); err != nil {
		return err
	}
	to := netip.AddrPortFrom(x.at.Addr, x.at.Port)
	d, err := program.Decide(device.Index, x.at.Protocol, x.asker.at, to)
	if err != nil {
		return err
	}
	x.Refused = d.Reason
	switch {
	case d.Reason != "":
		x.refuse()
	case d.To == to && !d.CarriedTo.IsValid() && !device.IsShared() && netdev.TurnsBack(to.Addr(), device.Index):
		return x.turnBack(s)
	case d.To == to && !d.CarriedTo.IsValid():
		x.Outcome = leftAlone
	default:
		x.To = lb.AddrPort{Addr: d.To.Addr(), Port: d.To.Port(), Protocol: x.at.Protocol}.String()
		x.follow(d, x.asker.devices)
		decide := func(i int) (datapath.Decision, error) {
			return program.Decide(device.Index, x.at.Protocol, x.otherClient(i), to)
		}
		if err := x.findRoom(s, d, decide); err != nil || x.Refused != "" {
			return err
		}
		return x.tryShares(d, decide)
	}
	return nil
}

// leftAlone is the outcome of packets that are for no Service.
const leftAlone = "left alone: no Service has this address and port, so the packet goes on as it is"

// turnBack says what becomes of a packet that would leave for a router by the device that it came by.
func (x *explanation) turnBack(s *sight) (err error) {
	if x.Refused, err = s.TurnsBack(x.at.Addr); x.Refused == "" {
		x.Outcome = leftAlone
		return err
	}
	x.refuse()
	return err
}

// findRoom asks whether the flow table has room for flows of the client, each to its own backend. What is carried needs none.
func (x *explanation) findRoom(s *sight, first datapath.Decision, decide func(i int) (datapath.Decision, error)) error {
	some := []netip.AddrPort{x.asker.at}
	for i := 0; i < tries && x.asker.at.Port() == clientPort; i++ {
		some = append(some, x.otherClient(i))
	}
	at := netip.AddrPortFrom(x.at.Addr, x.at.Port)
	if lacking, err := s.NoRoom(x.at.Protocol, at, first.To, some...); err != nil || lacking == 0 {
		return err // as a rule, so the program is not asked about each
	}
	clients := map[netip.AddrPort][]netip.AddrPort{} // by the backend
	all, needing, lacking := 0, 0, 0
	add := func(client netip.AddrPort, d datapath.Decision) {
		if all++; !d.CarriedTo.IsValid() && d.Reason == "" {
			needing++
			clients[d.To] = append(clients[d.To], client)
		}
	}
	add(x.asker.at, first)
	for i := 0; i < tries && x.asker.at.Port() == clientPort; i++ {
		d, err := decide(i)
		if err != nil {
			return err
		}
		add(x.otherClient(i), d)
	}
	for backend, some := range clients {
		n, err := s.NoRoom(x.at.Protocol, at, backend, some...)
		if lacking += n; err != nil {
			return err
		}
	}
	if lacking == 0 {
		return nil
	}
	if !first.CarriedTo.IsValid() && lacking*2 > needing {
		x.Refused, x.To = "table_full", ""
		x.refuse()
	}
	x.Remedy = fmt.Sprintf("the flow table is full: %d of %d new flows of this client find no room now: %s", lacking, all, agent.Faults["table_full"])
	return nil
}

// otherClient returns the client by a port of its own, none twice.
func (x *explanation) otherClient(i int) netip.AddrPort {
	return netip.AddrPortFrom(x.asker.at.Addr(), otherPort(x.asker.at.Port(), i))
}

// otherPort returns one of a client beside a port, none twice.
func otherPort(port uint16, i int) uint16 {
	const reserved = 1024
	return reserved + uint16((int(port)+1+i)%(1<<16-reserved))
}

// otherCode says where a program that decides is not the one in force, "" where it is.
func otherCode(program *datapath.Replay, inForce string) string {
	if !program.Differs {
		return ""
	}
	return " as this headgate has it, and other code is in force, of version " + inForce + ": ask with the headgate of that version"
}

// remember has the program know which backend the client had last.
func (x *explanation) remember(s *sight, program *datapath.Replay, client netip.Addr) error {
	_, f, found, err := s.Meant(x.at)
	if err != nil || !found || f.AffinityTimeout == 0 {
		return err
	}
	err = s.Affinities(func(a datapath.Affinity) error {
		if b := s.Backend(a.Backend).At; a.Client == client && a.Service == f.Service && b.Port != 0 {
			x.Affinity += "; this one had " + b.String()
		}
		return nil
	})
	if err != nil {
		return err
	}
	return program.Remember(s.Reader, client, f.Service)
}

// follow says how the backend would see a packet: where it leaves for another node it gets the
// address of the device, unless it is carried.
func (x *explanation) follow(d datapath.Decision, devices []datapath.Device) {
	to := slices.IndexFunc(x.Backends, func(b explainedShare) bool { return b.Backend == x.To })
	if d.CarriedTo.IsValid() {
		x.Outcome = fmt.Sprintf("this packet goes to %s: forwarded (DSR) to %s, and the backend answers the client directly", x.To, x.homeOf(to, d.CarriedTo))
		if x.drained("") != nil {
			x.Outcome += ", if no node chooses otherwise: a backend is drained here, and other nodes may still have it"
		}
		return
	}
	source := d.From.String()
	by, err := netdev.LeavesBy(d.To.Addr())
	for _, device := range devices {
		if own := device.Source(d.To.Addr()); to >= 0 && err == nil && device.Index == by && !device.Pod && own.IsValid() {
			source = own.String()
			x.Remedy = x.keepSource(own)
		}
	}
	switch {
	case err != nil && to >= 0:
		x.Remedy = fmt.Sprintf("the packet is lost, since this node has no route to %s: look at its routes, and at the pod network", d.To.Addr())
	case x.asker.lost != nil:
		x.Remedy = fmt.Sprintf("the answer is lost, since this node has no route to %s: look at its routes", x.asker.at.Addr())
	}
	x.Outcome = fmt.Sprintf("this packet goes to %s, with %s as its source", x.To, source)
}

// homeOf says where a packet is carried to: the node of a backend, by its place in the list, or the backend itself.
func (x *explanation) homeOf(backend int, at netip.Addr) string {
	switch {
	case backend < 0:
		return at.String()
	case x.Backends[backend].Node == "":
		return "the node at " + at.String()
	default:
		return fmt.Sprintf("node %s at %s", x.Backends[backend].Node, at)
	}
}

// rows returns the story, a line each.
func (x *explanation) rows() [][]string {
	rows := [][]string{{"client", x.Client + ": decided " + x.Decided}}
	if x.Frontend == "" {
		rows = append(rows, []string{"frontend", "none at " + x.Address})
	} else {
		rows = append(rows,
			[]string{"frontend", fmt.Sprintf("%s, %s of %s", x.Frontend, x.Kind, x.Service)},
			[]string{"ranges", cmp.Or(strings.Join(x.Ranges, ", "), "none: everybody may")},
			[]string{"affinity", cmp.Or(x.Affinity, "none")},
			[]string{"policy", cmp.Or(x.Policy, "none beside what Kubernetes says")},
			[]string{"backends", fmt.Sprintf("%s, for %s clients: %s", x.Algorithm, x.View, cmp.Or(x.Why, "unknown why"))})
	}
	for _, b := range x.Backends {
		rows = append(rows, []string{"", x.line(b)})
	}
	rows = append(rows, []string{"outcome", x.Outcome})
	if x.Others != "" {
		rows = append(rows, []string{"others", x.Others})
	}
	if x.Remedy != "" {
		rows = append(rows, []string{"remedy", x.Remedy})
	}
	return rows
}
