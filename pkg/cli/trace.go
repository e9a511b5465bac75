package cli

import (
	"context"
	"fmt"
	"io"
	"net/netip"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/pkg/command"
	"github.com/headgate/headgate/pkg/datapath"
	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/plan"
)

// traced is a decision, as it is shown.
type traced struct {
	service plan.Service
	backend lb.AddrPort
	// before and after are the ends of a packet.
	before, after packetEnds
	At            time.Time        `json:"at"`
	Where         string           `json:"where"`             // connect, sendmsg; in and out for packets, driver for those at a driver
	Device        string           `json:"device,omitempty"`  // of packets that are refused or carried, or at a driver
	Verdict       datapath.Verdict `json:"verdict,omitempty"` // likewise
	PID           uint32           `json:"pid,omitempty"`     // of sockets
	Process       string           `json:"process,omitempty"` // likewise
	From          string           `json:"from,omitempty"`    // of packets; of sockets in a pod the address of the pod
	Asked         string           `json:"asked,omitempty"`
	Got           string           `json:"got,omitempty"`     // "" where it was refused or passed
	NowFrom       string           `json:"nowFrom,omitempty"` // of packets that a driver sent: what From became
	Pod           string           `json:"pod,omitempty"`     // that the backend is, where an agent knows it
	Refused       string           `json:"refused,omitempty"` // why
	Service       string           `json:"service,omitempty"`
}

// changedSince stands for a reason that is no more when it is looked for.
const changedSince = "for a reason that is gone"

// takenPort is why a connect() gets EADDRNOTAVAIL.
const takenPort = "since another socket with its source port has the backend"

// packetsEvery is how often the flow table is looked at for new flows.
const packetsEvery = 200 * time.Millisecond

func newTrace(e *env) *cobra.Command {
	t := &trace{env: e, carried: packetTrace{what: "carried packets and packets at drivers"}, refused: packetTrace{what: "refused packets", tracer: datapath.PacketTracer{Drops: true}}}
	cmd := &cobra.Command{
		Use:   "trace [{ADDRESS[:PORT] | [NAMESPACE/]SERVICE[:PORT]}]",
		Short: "Show decisions as they are made: connect(), sendmsg(), new flows, refused packets, packets at drivers",
		Long: `Shows decisions as they are made, until it is interrupted or --for is over: which backend a connect() or a
datagram of a socket on this node got, by which process, or why it was refused; and new flows of
packets, which are looked for five times a second, so that shorter ones are missed. Which Pod a backend
is an agent says, where one answers at --state-dir. A process in a pod is shown with the address of the pod:
pid 25172 curl of 10.244.1.9.

Packets that programs of devices refuse are lines of their own: hook and device, client, what it asked for, the reason,
and the Service. in and out are the directions at the device. At a pod's device, in is from the pod. Ports are left
out if they are not known, as of fragments. Connections that this node carries to another node (DSR) have no flow
here. Their first packets are lines with the addresses of the outer header, and so is each datagram of UDP that is not cut.

Where drivers repeat or carry (--xdp of the agent), it shows packets there: as they came, and what was done:
repeated, with the addresses that they left with; carried, with those of the outer header; or passed to TC. Drivers
refuse nothing, and pass such packets to TC.

Of many packets, 100 in a second are shown from each CPU, whomever they are for, and trace says how many it
left out. Refused packets have 100 of their own.

Programs that tell of sockets are attached behind those that decide for as long as this command
runs. So it costs nothing else; meanwhile a connect() to a Service costs some hundred nanoseconds more.
Programs tell of packets until a second after the last look. Several commands may trace at once. Where more is decided
than can be shown it says how many decisions are missing.

With --pcap each decision is written as two packets, too, for Wireshark and tcpdump: as it was
meant to go and as it goes, with a comment that names process, Service, backend and Pod; a refused one as the first
alone. These packets were not seen on the way: they are made of addresses and ports, a SYN each or a datagram of
zeros. Before connect() a socket has no address, so that its packets come from port 0 of 0.0.0.0 or ::.`,
		Args:              atMostOne,
		ValidArgsFunction: services.untyped().complete(e),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				t.wanted.word = args[0]
			}
			t.out = cmd.OutOrStdout()
			t.complaints, t.lines = cmd.ErrOrStderr(), command.LinesTo(t.out)
			return t.run(cmd.Context())
		},
	}
	cmd.Flags().BoolVar(&t.drops, "drops", false, "only what is refused: sockets and packets")
	endsAfter(cmd)
	cmd.Flags().Var(&t.file, "pcap", "also write decisions as packets into this file, which is made anew (pcapng); - writes nothing but these to stdout")
	cmd.Flags().StringVarP(&t.wanted.namespace, "namespace", "n", "", "namespace of the Services")
	return cmd
}

// trace is a command that shows decisions.
type trace struct {
	env             *env
	out, complaints io.Writer
	wanted          wanted
	drops           bool
	file            packetFile
	packets         capture // to nowhere unless it is asked for
	lines           command.Lines
	lost            uint64      // said
	carried         packetTrace // and those at drivers
	refused         packetTrace
	said            said
	node            uint64       // cookie of the network namespace that is no pod's
	pods            podAddresses // whose processes have sockets
	flows           map[flowKey]bool
}

// flowKey tells a direction of a flow.
type flowKey struct {
	hook     string
	protocol lb.Protocol
	from, to netip.AddrPort
}

// run shows until the context ends.
func (t *trace) run(ctx context.Context) error {
	if err := t.checkPackets(); err != nil {
		return err
	}
	if err := t.env.look(t.check); err != nil {
		return err
	}
	if err := t.lookAtPackets(); err != nil { // those that there are
		return err
	}
	if err := t.lookAtTold(false); err != nil {
		return err
	}
	var err error
	if t.node, err = datapath.OwnNamespace(); err != nil {
		return err
	}
	var sockets *datapath.Tracer
	err = datapath.Look(t.env.open, func(r *datapath.Reader) (err error) { // who may not load programs may read
		sockets, err = r.NewTracer()
		return err
	})
	if err != nil {
		return err
	}
	defer sockets.Close()
	return t.capturing(ctx, sockets)
}

// showAll shows until the context ends. Maps that were replaced by larger ones are left with the next
// look at packets.
func (t *trace) showAll(ctx context.Context, sockets *datapath.Tracer) error {
	for ended := false; !ended; {
		ended = ctx.Err() != nil // then what was decided before is shown
		if err := t.readSockets(sockets, time.Now().Add(packetsEvery)); err != nil {
			return err
		}
		if err := t.lookAtPackets(); err != nil {
			return err
		}
		if err := t.lookAtTold(ended); err != nil {
			return err
		}
	}
	return nil
}

// check returns an error where there is no such Service, and no such address can come.
func (t *trace) check(r *datapath.Reader) error {
	if t.wanted.everything() || t.wanted.isAddress() {
		return nil
	}
	return services.untyped().mayBeEmpty(&sight{Reader: r, wanted: t.wanted, env: t.env})
}

// readSockets shows what is decided about sockets until then.
func (t *trace) readSockets(from *datapath.Tracer, until time.Time) error {
	var all []datapath.Told
	for {
		one, ok, err := from.Read(until)
		if err != nil {
			return err
		}
		if !ok {
			break
		}
		all = append(all, one)
		if !time.Now().Before(until) {
			break
		}
	}
	if lost, err := from.Lost(); err != nil {
		return err
	} else if lost > t.lost {
		fmt.Fprintf(t.complaints, "%d decisions about sockets are missing: they came faster than they could be read\n", lost-t.lost)
		t.lost = lost
	}
	if len(all) == 0 {
		return nil
	}
	return t.env.look(func(r *datapath.Reader) error {
		s := &sight{Reader: r, env: t.env}
		for len(all) > 0 {
			one, err := s.traced(all[0])
			if err != nil {
				return err
			}
			one.From = t.podOf(all[0].Netns)
			all = all[1:] // shown once, though maps are read again
			if err := t.show(one); err != nil {
				return err
			}
		}
		return nil
	})
}

// podOf returns the address of the pod that has a network namespace, "" if it is the node's or not known.
func (t *trace) podOf(namespace uint64) string {
	if namespace == t.node {
		return ""
	}
	if a := t.pods.ofNew(namespace); a.IsValid() {
		return a.String()
	}
	return ""
}

// traced puts names to what a program has told.
func (s *sight) traced(told datapath.Told) (traced, error) {
	one := traced{At: told.At, Where: told.Call, PID: told.PID, Process: told.Process, Asked: told.Asked.String(), Got: told.Got.String(), backend: told.Got}
	one.before, one.after = ofSocket(told.Asked), ofSocket(told.Got)
	var err error
	if one.service, err = s.serviceAt(told.Asked); err != nil {
		return one, err
	}
	if told.Refused {
		one.Got = ""
		x := explanation{at: told.Asked}
		if err := x.read(s); err != nil {
			return one, err
		}
		if err := x.decideAtConnect(s); err != nil {
			return one, err
		}
		switch {
		case told.Taken:
			one.Refused = takenPort
		case x.Refused != "":
			one.Refused = x.Refused
		case x.Ranges != nil:
			one.Refused = "source_range"
		default:
			one.Refused = changedSince
		}
	}
	return one, nil
}

// serviceAt returns the Service port that clients of an address mean, the zero one for none.
func (s *sight) serviceAt(at lb.AddrPort) (plan.Service, error) {
	_, f, found, err := s.Meant(at)
	if err != nil || !found {
		return plan.Service{}, err
	}
	return s.Service(f.Service)
}

// lookAtPackets shows the flows that are new. The first look shows none.
func (t *trace) lookAtPackets() error {
	if t.drops {
		return nil
	}
	now, first := map[flowKey]bool{}, t.flows == nil
	var fresh []traced
	err := t.env.look(func(r *datapath.Reader) error {
		clear(now)
		fresh = nil
		return r.Flows(func(f datapath.Flow) error {
			key := flowKey{f.Hook, f.Protocol, f.From, f.To}
			now[key] = true
			if first || t.flows[key] || f.To == f.NowTo || f.Hook != "in" || f.State == datapath.FlowRefused {
				return nil
			}
			one, err := (&sight{Reader: r, env: t.env}).tracedFlow(f)
			fresh = append(fresh, one)
			return err
		})
	})
	t.flows = now
	for _, one := range fresh {
		if err == nil {
			err = t.show(one)
		}
	}
	return err
}

// tracedFlow puts names to a flow.
func (s *sight) tracedFlow(f datapath.Flow) (one traced, err error) {
	to := func(at netip.AddrPort) lb.AddrPort {
		return lb.AddrPort{Addr: at.Addr(), Port: at.Port(), Protocol: f.Protocol}
	}
	one = traced{At: time.Now(), Where: f.Hook, From: f.From.String(), Asked: to(f.To).String(), Got: to(f.NowTo).String(), backend: to(f.NowTo)}
	one.before, one.after = packetEnds{f.Protocol, f.From, f.To}, packetEnds{f.Protocol, f.NowFrom, f.NowTo}
	one.service, err = s.Service(f.Service)
	return one, err
}

func (one traced) names() []string {
	var out []string
	for _, at := range []string{one.From, one.Asked, one.Got} {
		if parsed, ok := parseTarget(at); ok {
			out = append(out, addressNames(parsed)...)
		} else if at, _, _ = strings.Cut(at, "/"); at != "" { // without a port
			out = append(out, at)
		}
	}
	return append(out, one.Process)
}

func (one traced) owners() []plan.Service { return []plan.Service{one.service} }

// show shows a decision that is wanted.
func (t *trace) show(one traced) error {
	if t.drops && one.Refused == "" || !t.wanted.wants(one) {
		return nil
	}
	if one.service != (plan.Service{}) {
		one.Service = one.service.String()
	}
	if one.Got != "" {
		one.Pod = podName(t.said.about(t.env, one.backend, one.service.ServiceName))
	}
	if t.packets.out != nil {
		if err := t.packets.decision(one); err != nil {
			return err
		}
	}
	if t.packets.out == t.out {
		return nil
	}
	if t.env.ForPrograms() {
		return t.env.Print(t.out, command.Table{Value: one, Names: []string{"decision/" + one.Asked}})
	}
	who := one.From
	if one.PID != 0 {
		who = one.process()
	}
	where := strings.TrimSpace(one.Where + " " + one.Device)
	return t.lines.Write(t.out, []string{one.At.Format("15:04:05.000"), where, who, one.Asked, one.became(), one.Service})
}

// process is whose socket it is.
func (one traced) process() string {
	who := fmt.Sprintf("pid %d %s", one.PID, one.Process)
	if one.From != "" {
		who += " of " + one.From
	}
	return who
}

// became is the backend, or why there is none.
func (one traced) became() string {
	switch {
	case one.Refused != "":
		return "refused " + one.Refused
	case one.Verdict != "":
		return one.ofPacket()
	case one.Pod != "":
		return one.Got + " pod " + one.Pod
	default:
		return one.Got
	}
}
