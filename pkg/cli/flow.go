package cli

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/pkg/command"
	"github.com/headgate/headgate/pkg/datapath"
	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/plan"
)

// flow is one direction of a flow as it is shown.
type flow struct {
	Hook     string `json:"hook"`
	Protocol string `json:"protocol"`
	From     string `json:"from"`
	To       string `json:"to"`
	NowFrom  string `json:"now_from"` // what packets become
	NowTo    string `json:"now_to"`
	State    string `json:"state"`
	Idle     int64  `json:"idle_seconds"`
	Service  string `json:"service,omitempty"`
}

// flowCount is how many entries of conntrack are in a state.
type flowCount struct {
	Protocol string `json:"protocol"`
	State    string `json:"state"`
	Entries  int    `json:"entries"`
}

// flowTotal is what headgate flow count says.
type flowTotal struct {
	Entries int         `json:"entries"` // two or four for each flow
	Room    uint32      `json:"room"`    // in entries
	Counts  []flowCount `json:"counts"`
}

func newFlow(e *env) *cobra.Command {
	list := &cobra.Command{
		Use:   "list [ADDRESS | ADDRESS:PORT | NAMESPACE/SERVICE]",
		Short: "List flows: the addresses of each direction, and those they are rewritten to",
		Args:  oneFlow,
		RunE:  e.inspect(listFlows),
	}
	count := &cobra.Command{
		Use:   "count",
		Short: "Count flows by protocol and state, beside the size of the table",
		Args:  command.NoArgs,
		RunE:  e.inspect(countFlows),
	}
	cmd := noun("flow", "Flows of packets that do not come from a socket of this node", list, count)
	cmd.Long = `Flows of packets that do not come from a socket of this node. Each line is one direction
of a flow: at a hook (in: packets that reach a device, out: packets that leave by one)
packets FROM, TO become NOW FROM, NOW TO. IDLE is how long ago the last one came. The
states of a direction are

  half-open    not confirmed by both sides yet, or closed by both: first to make room
  established  confirmed, or the replies of a flow that may still be half-open
  closing      a FIN or RST has come in this direction
  refused      without a backend: its packets are answered with a refusal
  broken       to a backend that has left the Service: the connection is reset`
	list.Long = cmd.Long
	return cmd
}

func oneFlow(cmd *cobra.Command, args []string) error {
	return command.NoArgs(cmd, args[min(1, len(args)):])
}

func listFlows(r *datapath.Reader, args []string) (command.Table, error) {
	if len(args) > 0 {
		if err := anyMeant(r, args[0]); err != nil {
			return command.Table{}, err
		}
	}
	all := []flow{}
	err := r.Flows(func(f datapath.Flow) error {
		shown := flow{
			Hook: f.Hook, Protocol: f.Protocol.String(), From: f.From.String(), To: f.To.String(), NowFrom: f.NowFrom.String(), NowTo: f.NowTo.String(),
			State: string(f.State), Idle: int64(f.Idle / time.Second),
		}
		service, err := r.Service(f.Service)
		if err != nil {
			return err
		}
		if service != (plan.Service{}) {
			shown.Service = service.String()
		}
		if len(args) == 0 || isMeant(args[0], f, service) {
			all = append(all, shown)
		}
		return nil
	})
	if err != nil {
		return command.Table{}, err
	}
	slices.SortFunc(all, func(a, b flow) int {
		return cmp.Or(cmp.Compare(a.Hook, b.Hook), cmp.Compare(a.Protocol, b.Protocol), cmp.Compare(a.To, b.To), cmp.Compare(a.From, b.From))
	})
	t := command.Table{Header: []string{"HOOK", "PROTOCOL", "FROM", "TO", "NOW FROM", "NOW TO", "STATE", "IDLE", "SERVICE"}, Value: all}
	for _, f := range all {
		t.Rows = append(t.Rows, []string{f.Hook, f.Protocol, f.From, f.To, f.NowFrom, f.NowTo, f.State, fmt.Sprintf("%ds", f.Idle), f.Service})
	}
	return t, nil
}

// anyMeant says whether a word of the command line can mean a flow: it is an address, with
// or without port, or a Service that there is.
func anyMeant(r *datapath.Reader, word string) error {
	_, noPort := netip.ParseAddr(word)
	_, noAddress := netip.ParseAddrPort(word)
	if noPort == nil || noAddress == nil {
		return nil
	}
	for id := range r.Services() {
		service, err := r.Service(id)
		if err != nil || isService(word, service) {
			return err
		}
	}
	return fmt.Errorf("no Service is %s: give namespace/service as headgate frontend list shows it, or an address, with or without port", lb.Quote(word))
}

// isMeant says whether a word of the command line means a flow: one of its
// addresses, with or without port, or its Service.
func isMeant(word string, f datapath.Flow, service plan.Service) bool {
	if isService(word, service) {
		return true
	}
	for _, end := range []netip.AddrPort{f.From, f.To, f.NowFrom, f.NowTo} {
		if word == end.String() || word == end.Addr().String() {
			return true
		}
	}
	return false
}

func countFlows(r *datapath.Reader, _ []string) (command.Table, error) {
	type class struct {
		protocol lb.Protocol
		state    datapath.FlowState
	}
	counts := map[class]int{}
	total := flowTotal{Room: r.FlowRoom(), Counts: []flowCount{}}
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
