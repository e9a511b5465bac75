package cli

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/pkg/datapath"
	"github.com/headgate/headgate/pkg/lb"
)

// flow is one way of a flow as it is shown.
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

// flowCount is how many ways of flows are in a state.
type flowCount struct {
	Protocol string `json:"protocol"`
	State    string `json:"state"`
	Ways     int    `json:"ways"`
}

// flowTotal is what headgate flow count says.
type flowTotal struct {
	Ways      int         `json:"ways"`
	Room      uint32      `json:"room"`       // for ways
	BriefRoom uint32      `json:"brief_room"` // for brief flows, of two ways each
	Counts    []flowCount `json:"counts"`
}

func newFlow(e *env) *cobra.Command {
	list := &cobra.Command{
		Use:   "list [ADDRESS | ADDRESS:PORT | NAMESPACE/SERVICE]",
		Short: "List flows of packets, each way of them: between whom, and what that becomes",
		Args:  oneFlow,
		RunE:  e.inspect(listFlows),
	}
	count := &cobra.Command{
		Use:   "count",
		Short: "Count them by protocol and state, and say how much room there is",
		Args:  noArgs,
		RunE:  e.inspect(countFlows),
	}
	return noun("flow", "Flows of packets that do not come from a socket of this node", list, count)
}

func oneFlow(cmd *cobra.Command, args []string) error { return noArgs(cmd, args[min(1, len(args)):]) }

func listFlows(i *datapath.Inspector, args []string) (table, error) {
	c, err := i.Content()
	if err != nil {
		return table{}, err
	}
	all := []flow{}
	err = i.Flows(func(f datapath.Flow) bool {
		shown := flow{
			Hook: f.Hook, Protocol: f.Protocol.String(), From: f.From.String(), To: f.To.String(), NowFrom: f.NowFrom.String(), NowTo: f.NowTo.String(),
			State: string(f.State), Idle: int64(f.Idle / time.Second),
		}
		if s, ok := c.Services[f.Service]; ok {
			shown.Service = s.String()
		}
		if len(args) == 0 || isMeant(args[0], f, shown.Service) {
			all = append(all, shown)
		}
		return true
	})
	if err != nil {
		return table{}, err
	}
	slices.SortFunc(all, func(a, b flow) int {
		return cmp.Or(cmp.Compare(a.Hook, b.Hook), cmp.Compare(a.Protocol, b.Protocol), cmp.Compare(a.To, b.To), cmp.Compare(a.From, b.From))
	})
	t := table{header: []string{"HOOK", "PROTOCOL", "FROM", "TO", "NOW FROM", "NOW TO", "STATE", "IDLE", "SERVICE"}, value: all}
	for _, f := range all {
		t.rows = append(t.rows, []string{f.Hook, f.Protocol, f.From, f.To, f.NowFrom, f.NowTo, f.State, fmt.Sprintf("%ds", f.Idle), f.Service})
	}
	return t, nil
}

// isMeant says whether a word of the command line means a flow: one of its
// addresses, with or without port, or its Service.
func isMeant(word string, f datapath.Flow, service string) bool {
	if frontend := (frontend{Service: service, Frontend: "/"}); service != "" && frontend.isMeant(word) {
		return true
	}
	for _, end := range []netip.AddrPort{f.From, f.To, f.NowFrom, f.NowTo} {
		if word == end.String() || word == end.Addr().String() {
			return true
		}
	}
	return false
}

func countFlows(i *datapath.Inspector, _ []string) (table, error) {
	type class struct {
		protocol lb.Protocol
		state    datapath.FlowState
	}
	counts := map[class]int{}
	total := flowTotal{Room: i.FlowRoom(), BriefRoom: i.BriefRoom(), Counts: []flowCount{}}
	err := i.Flows(func(f datapath.Flow) bool {
		counts[class{f.Protocol, f.State}]++
		total.Ways++
		return true
	})
	if err != nil {
		return table{}, err
	}
	t := table{header: []string{"PROTOCOL", "STATE", "WAYS", "ROOM"}}
	for _, k := range slices.SortedFunc(maps.Keys(counts), func(a, b class) int {
		return cmp.Or(cmp.Compare(a.protocol, b.protocol), cmp.Compare(a.state, b.state))
	}) {
		total.Counts = append(total.Counts, flowCount{k.protocol.String(), string(k.state), counts[k]})
		t.rows = append(t.rows, []string{k.protocol.String(), string(k.state), fmt.Sprint(counts[k])})
	}
	t.rows = append(t.rows, []string{"all", "", fmt.Sprint(total.Ways), fmt.Sprint(total.Room)})
	t.value = total
	return t, nil
}
