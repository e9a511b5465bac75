package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/pkg/command"
	"github.com/headgate/headgate/pkg/datapath"
)

// flowEvent is something that has happened to a flow, as programs read it.
type flowEvent struct {
	At    time.Time `json:"at"` // of the look that found it
	Event eventType `json:"event"`
	flow            // as it was found, or was last
}

// eventType says what has happened. Other events are states that flows have come into.
type eventType string

const (
	flowNew     eventType = "new"
	flowMoved   eventType = "moved"
	flowClosed  eventType = "closed"
	flowEvicted eventType = "evicted"
)

func newFlowWatch(e *env) *cobra.Command {
	w := &flowWatch{env: e}
	var of listing
	var every time.Duration
	cmd := &cobra.Command{
		Use:   "watch [" + flows.words + "]",
		Short: "Show what happens to flows: begun, confirmed, moved to another backend, closed",
		Long: `Shows a line for whatever happens to flows, until it is interrupted or --for is over: when, what, hook,
protocol, client, frontend, backend, state, Service. Each socket and each flow of packets is one, by the
direction from the client. What is there at the start is counted, not told. The events are

  new          it has begun, or one that was over has begun again
  closed       both sides have closed it, one has reset it, or its socket is closed. Also: one side had
               closed it, and it is gone
  moved        it goes to another backend
  evicted      packets: it is gone, and was not seen to end. It made room for others, or was flushed
  (a state)    it has come into this state, such as established: headgate flow explains them

--state shows events of flows that are in one of these states after the event, or were before it.

The command compares the tables from one look to the next. So it misses what begins and ends between two
looks, all but the last of several changes, and that one flow took the place of another with the same
addresses and ports.
How many have begun that no line told of is said where all flows are watched: of sockets, those that are closed again
before the next look are most of them. headgate trace shows each connect(). A look goes through all
flows and, while there are some, sockets: with very many choose a longer --interval.`,
		Args: atMostOne, ValidArgsFunction: flows.untyped().complete(e),
		RunE: func(cmd *cobra.Command, args []string) error {
			w.out, w.complaints = cmd.OutOrStdout(), cmd.ErrOrStderr()
			w.lines = command.LinesTo(w.out)
			s := newSight(e, &of, args)
			w.states, s.states = s.states, anyState // those that leave one of these are known, too
			defer s.Close()
			return w.run(cmd.Context(), s, every)
		},
	}
	of.addNamespace(cmd, true)
	of.addFlows(cmd, "only events of flows in these states, such as closing,closed (default: all events)")
	cmd.Flags().Var(atLeast(&every, watchEvery, leastInterval), "interval", "time from one look to the next")
	endsAfter(cmd)
	return cmd
}

// flowWatch is a command that shows what happens to flows.
type flowWatch struct {
	env             *env
	out, complaints io.Writer
	lines           command.Lines
	states          datapath.FlowState  // whose events are shown, "" for all
	known           map[watchedKey]flow // as they were at the last look, nil before the first
	there           int                 // of them, those that are wanted
	began           begun               // what the programs had counted then
	seen            begun               // how many new ones were found since
	said            begun               // how many are missing
}

// watchedKey tells a flow from others: a socket by its cookie and what it asks for.
type watchedKey struct {
	cookie   uint64
	protocol string
	from, to netip.AddrPort
}

// begun is how many flows have begun, by path.
type begun struct{ sockets, packets uint64 }

// run shows until the context ends.
func (w *flowWatch) run(ctx context.Context, s *sight, every time.Duration) error {
	noun := flows.untyped()
	items, err := noun.collect(s)
	if err == nil {
		err = w.tell(time.Now(), items)
	}
	if err == nil {
		w.began, err = w.count()
		fmt.Fprintf(w.complaints, "watching, every %v; %s there already\n", every, plural(w.there, "flow is", "flows are"))
	}
	again := time.NewTicker(every)
	defer again.Stop()
	for err == nil {
		select {
		case <-ctx.Done():
			return nil
		case <-again.C:
		}
		err = w.lookAgain(noun, s)
	}
	return err
}

// lookAgain shows what has happened since the look before. What programs have counted is read first,
// so that nothing is missing which the look could not have found.
func (w *flowWatch) lookAgain(noun *grammar, s *sight) error {
	counted, err := w.count()
	if err != nil {
		return err
	}
	items, err := noun.collectAny(s)
	if err == nil {
		err = w.tell(time.Now(), items)
	}
	if err == nil && s.wanted.everything() {
		w.complain(counted, s.wanted.path)
	}
	return err
}

// tell shows what is different from the look before.
func (w *flowWatch) tell(now time.Time, items []item) error {
	found := make(map[watchedKey]flow, len(w.known))
	var events []flowEvent
	w.there = 0
	for _, i := range items {
		f := *i.(*flow)
		if !f.begins {
			continue
		}
		key := watchedKey{f.Cookie, f.Protocol, f.From, f.To}
		if f.Path == pathSocket {
			key.from = netip.AddrPort{} // which it gets while it connects
		}
		was, known := w.known[key]
		event := happened(&was, known, &f)
		found[key] = f
		if isShown(w.states, f.State) {
			w.there++
		}
		if event == "" || w.known == nil {
			continue
		}
		events = append(events, flowEvent{now, event, f})
		switch {
		case event != flowNew:
		case f.Path == pathPacket:
			w.seen.packets++
		case f.Hook == "connect":
			w.seen.sockets++
		}
	}
	for key, was := range w.known {
		if _, stays := found[key]; !stays && !isOver(was.State) {
			events = append(events, flowEvent{now, end(&was), was})
		}
	}
	w.known = found
	slices.SortStableFunc(events, func(a, b flowEvent) int {
		return cmp.Or(cmp.Compare(a.Path, b.Path), a.From.Compare(b.From), a.To.Compare(b.To), cmp.Compare(a.Event, b.Event))
	})
	for _, one := range events {
		if err := w.show(one); err != nil {
			return err
		}
	}
	return nil
}

// happened says what has become of a flow since the look before, "" for nothing.
func happened(was *flow, known bool, is *flow) eventType {
	switch {
	case !known || isOver(was.State) && !isOver(is.State):
		return flowNew
	case was.NowTo != is.NowTo:
		return flowMoved
	case was.State != is.State:
		return eventType(is.State)
	default:
		return ""
	}
}

// end says what it means that a flow is gone, which was not over.
func end(f *flow) eventType {
	if f.Path == pathSocket || f.State == string(datapath.FlowClosing) {
		return flowClosed
	}
	return flowEvicted
}

func (w *flowWatch) show(one flowEvent) error {
	if w.states != "" && !isShown(w.states, one.State) {
		return nil
	}
	if w.env.ForPrograms() {
		return w.env.Print(w.out, command.Table{Value: one, Names: []string{"flow/" + one.names()[0]}})
	}
	return w.lines.Write(w.out, []string{
		one.At.Format("15:04:05.000"), string(one.Event), one.Hook, one.Protocol, one.From.String(), one.To.String(), one.NowTo.String(), one.State, one.Service,
	})
}

// count returns how many flows have begun, as the programs count them.
func (w *flowWatch) count() (n begun, err error) {
	err = w.env.look(func(r *datapath.Reader) error {
		events, _, err := r.Counters()
		n = begun{sockets: events["connect"], packets: events["flow_made"]}
		return err
	})
	return n, err
}

// complain says how many flows no line has told of.
func (w *flowWatch) complain(counted begun, path flowPath) {
	for _, of := range []struct {
		what                 string
		path                 flowPath
		counted, began, seen uint64
		said                 *uint64
	}{
		{"socket", pathSocket, counted.sockets, w.began.sockets, w.seen.sockets, &w.said.sockets},
		{"packet flow", pathPacket, counted.packets, w.began.packets, w.seen.packets, &w.said.packets},
	} {
		began := of.counted - min(of.began, of.counted)
		missing := began - min(of.seen, began)
		if missing > *of.said && (path == of.path || path == allPaths) {
			fmt.Fprintf(w.complaints, "not shown: %s that came and went between two looks\n", plural(int(missing-*of.said), of.what, of.what+"s"))
			*of.said = missing
		}
	}
}
