package cli

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/pkg/command"
	"github.com/headgate/headgate/pkg/datapath"
	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/plan"
)

// flow is one direction of a flow of packets as it is shown, or a socket that goes to a backend.
type flow struct {
	service  plan.Service
	begins   bool           // it is a socket, or the direction in which packets come from the client
	Path     flowPath       `json:"path"`
	Hook     string         `json:"hook"`
	Protocol string         `json:"protocol"`
	From     netip.AddrPort `json:"from"`
	To       netip.AddrPort `json:"to"`
	NowFrom  netip.AddrPort `json:"nowFrom"` // what packets become
	NowTo    netip.AddrPort `json:"nowTo"`
	State    string         `json:"state"`
	Idle     *seconds       `json:"idleSeconds,omitempty"` // of packets
	Service  string         `json:"service,omitempty"`
	Cookie   uint64         `json:"cookie,omitempty"` // of a socket
	Netns    uint64         `json:"netns,omitempty"`  // cookie of its network namespace
}

// flowPath is what is balanced: sockets once, when they ask, or each packet.
type flowPath string

const (
	allPaths   flowPath = "all" // for people
	pathSocket flowPath = "socket"
	pathPacket flowPath = "packets"
)

func (f flow) names() []string {
	name := strings.Join([]string{f.Hook, f.Protocol, f.From.String(), f.To.String()}, "-")
	if f.Path == pathSocket { // which may have its address in common with others
		name = fmt.Sprint(name, "-", f.Cookie)
	}
	out := []string{name}
	for _, end := range []netip.AddrPort{f.From, f.To, f.NowFrom, f.NowTo} {
		out = append(out, end.String(), end.Addr().String())
	}
	return out
}

func (f flow) owners() []plan.Service { return []plan.Service{f.service} }

var flows = noun[flow]{
	name: "flow", kind: "Flow", short: "flows of sockets on this node, and of packets from elsewhere",
	long: `Flows to backends, by two paths. A socket on this node is balanced once: by a hook (connect, or sendmsg for
datagrams) the socket FROM, which asked for TO, goes to NOW TO. It has a line for each frontend
that it asks. Nobody looks at its packets, so that IDLE is not known.

Of packets that come from no such socket each line is one direction of a flow: at a hook (in: packets
that reach a device, out: packets that leave by one) packets FROM, TO become NOW FROM, NOW TO. IDLE is
how long ago the last one came. All directions of a flow have one state:

  half-open    TCP: the handshake is not complete
  unreplied    UDP, SCTP: no answer was seen
  replied      UDP, SCTP: an answer was seen, and no later packet of the client
  established  TCP: the handshake is complete. UDP, SCTP: the client has sent after an answer, two seconds
               or more after the first packet
  unconnected  a datagram socket that may send elsewhere, too
  closing      TCP: one side has sent a FIN
  refused      UDP, SCTP: it has no backend. The kernel answers its packets with an ICMP error

A flow of packets that is over keeps its place in the table until another needs it, or the agent frees
it. The kernel frees that of a socket. A flow that is over is in no list without --all or --state:

  closed       TCP: both sides have sent a FIN, or one has sent a RST
  broken       its backend has left the Service: the connection was reset
  expired      no packet came for too long. TCP: 60 s before the handshake is complete, 2 h 4 min if one
               side has closed. UDP, SCTP: 3 min`,
	words: "{ADDRESS[:PORT] | [NAMESPACE/]SERVICE[:PORT]}",
	columns: []column[flow]{
		{title: "HOOK", of: func(f flow) any { return f.Hook }},
		{title: "PROTOCOL", of: func(f flow) any { return f.Protocol }},
		{title: "FROM", of: func(f flow) any { return f.From }},
		{title: "TO", of: func(f flow) any { return f.To }},
		{title: "NOW FROM", of: func(f flow) any { return f.NowFrom }},
		{title: "NOW TO", of: func(f flow) any { return f.NowTo }},
		{title: "STATE", of: func(f flow) any { return f.State }},
		{title: "IDLE", of: func(f flow) any { return f.Idle.known() }},
		{title: "SERVICE", of: func(f flow) any { return f.Service }},
		{title: "PATH", of: func(f flow) any { return string(f.Path) }, wide: true},
	},
	read: readFlows, compare: compareFlows, passing: true, namespaced: true, paths: true,
}

// anyState has flows shown that are over, too.
const anyState = "all"

// isShown says whether flows in a state are shown: in one of some with commas between them, by default
// in those of flows that go on.
func isShown(only datapath.FlowState, state string) bool {
	switch only {
	case "":
		return !isOver(state)
	case anyState:
		return true
	default:
		return slices.Contains(strings.Split(string(only), ","), state)
	}
}

func isOver(state string) bool { return datapath.FlowState(state).IsOver() }

// seconds is a time that is known to a second.
type seconds int64

// String returns it as people read it.
func (s seconds) String() string { return fmt.Sprintf("%ds", int64(s)) }

// known returns nil where nobody knows it.
func (s *seconds) known() any {
	if s == nil {
		return nil
	}
	return *s
}

func newFlow(e *env) *cobra.Command {
	return flows.command(e, newFlowWatch(e), &cobra.Command{
		Use:   "count",
		Short: "Count flows of packets by protocol and state, also those that are over, beside the size of the table",
		Args:  command.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var t command.Table
			err := e.look(func(r *datapath.Reader) (err error) { t, err = countFlows(r); return err })
			if err != nil {
				return err
			}
			return e.Print(cmd.OutOrStdout(), t)
		},
	})
}

func readFlows(s *sight, do func(*flow) error) (err error) {
	add := func(one flow, service uint32) (err error) {
		if !isShown(s.states, one.State) {
			return nil
		}
		if one.service, err = s.Service(service); err != nil {
			return err
		}
		if one.service != (plan.Service{}) {
			one.Service = one.service.String()
		}
		return do(&one)
	}
	if s.wanted.path != pathSocket {
		err = s.Flows(func(f datapath.Flow) error { return add(flowOfPackets(f), f.Service) })
	}
	if err == nil && s.wanted.path != pathPacket {
		err = s.sockets.Each(s.Reader, func(f datapath.Socket) error { return add(flowOfSocket(f), f.Service) })
	}
	return err
}

func flowOfPackets(f datapath.Flow) flow {
	idle := seconds(f.Idle / time.Second)
	return flow{
		begins: f.Original && f.Hook == "in",
		Path:   pathPacket, Hook: f.Hook, Protocol: f.Protocol.String(), State: string(f.State), Idle: &idle,
		From: f.From, To: f.To, NowFrom: f.NowFrom, NowTo: f.NowTo,
	}
}

func flowOfSocket(s datapath.Socket) flow {
	return flow{
		begins: true,
		Path:   pathSocket, Hook: s.Call, Protocol: s.Protocol.String(), State: string(s.State), Cookie: s.Cookie, Netns: s.Netns,
		From: s.From, To: s.Asked, NowFrom: s.From, NowTo: s.Backend,
	}
}

func compareFlows(a, b flow) int {
	return cmp.Or(cmp.Compare(a.Path, b.Path), cmp.Compare(a.Hook, b.Hook), cmp.Compare(a.Protocol, b.Protocol), a.To.Compare(b.To), a.From.Compare(b.From))
}

// flowCount is how many directions of flows are in a state.
type flowCount struct {
	Protocol string `json:"protocol"`
	State    string `json:"state"`
	Entries  int    `json:"entries"`
}

// flowTotal is what headgate flow count says.
type flowTotal struct {
	command.Type
	Entries int         `json:"entries"` // two or four for each flow
	Room    uint32      `json:"room"`    // in entries
	Counts  []flowCount `json:"counts"`
}

func countFlows(r *datapath.Reader) (command.Table, error) {
	type class struct {
		protocol lb.Protocol
		state    datapath.FlowState
	}
	counts := map[class]int{}
	total := flowTotal{Type: command.TypeOf("FlowCount"), Room: r.FlowRoom(), Counts: []flowCount{}}
	err := r.Flows(func(f datapath.Flow) error {
		counts[class{f.Protocol, f.State}]++
		total.Entries++
		return nil
	})
	if err != nil {
		return command.Table{}, err
	}
	t := command.Table{Header: []string{"PROTOCOL", "STATE", "ENTRIES", "ROOM"}}
	for _, k := range slices.SortedFunc(maps.Keys(counts), func(a, b class) int {
		return cmp.Or(cmp.Compare(a.protocol, b.protocol), cmp.Compare(a.state, b.state))
	}) {
		total.Counts = append(total.Counts, flowCount{k.protocol.String(), string(k.state), counts[k]})
		t.Rows = append(t.Rows, []string{k.protocol.String(), string(k.state), fmt.Sprint(counts[k])})
	}
	t.Rows = append(t.Rows, []string{"all", "", fmt.Sprint(total.Entries), fmt.Sprint(total.Room)})
	t.Value = total
	return t, nil
}
