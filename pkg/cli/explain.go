package cli

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/pkg/command"
	"github.com/headgate/headgate/pkg/datapath"
	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/plan"
)

// explanation is what becomes of a client at a frontend, and why.
type explanation struct {
	at       lb.AddrPort
	asker    asker
	why      lb.Why // of the view
	node     string // this one
	carried  bool   // packets of these clients are, to the nodes of backends
	byLoad   bool   // backends are chosen by what is measured of them
	failing  bool   // a backend is not well
	port     plan.Service
	other    *lb.Description // of the Service, at another port
	asked    bool            // an agent has told of the Service
	Client   string          `json:"client"`
	Decided  string          `json:"decided"`            // where
	Address  string          `json:"address"`            // that the client asks for
	Frontend string          `json:"frontend,omitempty"` // "" where there is none
	Kind     string          `json:"kind,omitempty"`
	Service  string          `json:"service,omitempty"`
	// Ranges are the prefixes that the frontend is restricted to.
	Ranges    []string         `json:"ranges,omitempty"`
	Affinity  string           `json:"affinity,omitempty"`
	Policy    string           `json:"policy,omitempty"`
	View      string           `json:"view,omitempty"`
	Why       string           `json:"why,omitempty"` // the view has these backends and no others
	Algorithm string           `json:"algorithm,omitempty"`
	Backends  []explainedShare `json:"backends,omitempty"`
	// To is where the call or packet that was tried goes.
	To      string `json:"to,omitempty"`
	Refused string `json:"refused,omitempty"` // the reason, in the word of the counter
	Remedy  string `json:"remedy,omitempty"`
	// Others are processes of which this is not said.
	Others  string `json:"others,omitempty"`
	Outcome string `json:"outcome"`
}

func newExplain(e *env) *cobra.Command {
	q := question{env: e}
	cmd := &cobra.Command{
		Use:   "explain [--from {ADDRESS[:PORT] | pod:[NAMESPACE/]POD | pod:ADDRESS}] {ADDRESS:PORT[/PROTOCOL] | [NAMESPACE/]SERVICE[:PORT]}",
		Short: "Explain what becomes of a client of a Service, and why",
		Long: `Explains what becomes of a client of a Service: which frontend it means, who may use it, why these
backends stand behind it, which share each of them gets and how it is, and where this client goes; or why it
is refused, which counter counts that, and what to change. Pods, nodes and zones are named where an agent answers.
Where a Service has several addresses there is a line for each, and the whole story of the first and of those that differ from it in
more than the address: name one to see its own. A NodePort has a story if it is named: 192.0.2.1:30080.
A share is that of all clients as a rule; "now" is that of this client's connections as things are, where it is another: of
200 that the program is given. "Instead" are backends that get something only where those before them are avoided.

Without --from the client is a process on this node, and with --from pod: a pod on it, whose
network namespace is found by its address. The agent knows the address of pods that are behind
Services; of others write it. The program of sockets decides about a real connect(), or a datagram for UDP, of a
process that is started for it, in a cgroup of its own and the network namespace of the client. The call is ended
before anything is sent.

With --from ADDRESS the client is elsewhere: the program of the device by which its packets come, that of the route to
it, is given the first one that it would send. Where the address is that of this node or of a pod on it, its sockets decide.

Both programs are those of this headgate, with the settings in force: it says so where other code is in force,
as of another version. They work on the maps that are in force and on copies of those that they write. So
no connection or count changes and nothing is sent, unless --connect says so. The cgroup goes with the command, or, where that
was killed, with the next one, the next start of an agent or headgate cleanup.`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return fmt.Errorf("explain what? Write ADDRESS:PORT[/PROTOCOL] or [NAMESPACE/]SERVICE[:PORT]")
			}
			return atMostOne(cmd, args)
		},
		ValidArgsFunction: frontends.untyped().complete(e),
		RunE: func(cmd *cobra.Command, args []string) error {
			q.wanted.word = args[0]
			return q.explain(cmd)
		},
	}
	cmd.Flags().StringVar(&q.from, "from", "", "who asks: the address of a client elsewhere, with or without its port, or a pod on this node (default: a process on this node)")
	cmd.Flags().StringVarP(&q.wanted.namespace, "namespace", "n", "", "namespace of the Service, and of the pod")
	cmd.Flags().BoolVar(&q.connect, "connect", false, "also open a TCP connection to each backend, up to 16, to see if it answers: that sends a SYN to it, from the pod or from this node")
	return cmd
}

// newMakeCalls returns the command of the process that explain starts.
func newMakeCalls() *cobra.Command {
	return &cobra.Command{
		Use: makeCalls, Short: "Call connect() as headgate explain says", Hidden: true, Args: command.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return datapath.MakeCalls(cmd.InOrStdin(), cmd.OutOrStdout())
		},
	}
}

const makeCalls = "make-calls"

// question is what explain is asked.
type question struct {
	env     *env
	wanted  wanted
	from    string
	connect bool
}

// explain prints the story of a client at each frontend that is meant.
func (q *question) explain(cmd *cobra.Command) error {
	limitGarbage(garbage)
	who, err := q.env.asker(q.from, q.wanted.namespace)
	if err != nil {
		return err
	}
	var all []explanation
	err = q.env.look(func(r *datapath.Reader) (err error) {
		all, err = explainAll(cmd.Context(), &sight{Reader: r, wanted: q.wanted, env: q.env}, who)
		return err
	})
	if err != nil {
		return err
	}
	t := command.Table{Value: command.ListOf("Explanation", all)}
	for i := range all {
		if q.connect {
			all[i].tryBackends()
		}
		t.Names = append(t.Names, "frontend/"+all[i].Address)
	}
	t.Rows = storiesOf(all)
	return q.env.Print(cmd.OutOrStdout(), t)
}

// explainAll explains each address that is meant, in the family of the client.
func explainAll(ctx context.Context, s *sight, who asker) (out []explanation, err error) {
	if err := who.locate(s); err != nil {
		return nil, err
	}
	targets, err := s.targets(who.at)
	if err != nil {
		return nil, err
	}
	s.Rest() // to load programs takes memory, too
	var replays replays
	defer replays.close()
	for _, at := range targets {
		if ctx.Err() != nil {
			return out, ctx.Err()
		}
		x := explanation{at: at, asker: who, Address: at.String()}
		if err := x.read(s); err != nil {
			return nil, err
		}
		if who.at.IsValid() {
			err = x.replay(s, &replays)
		} else {
			err = x.replayCall(s, &replays)
		}
		if err != nil {
			return nil, err
		}
		x.advise()
		out = append(out, x)
	}
	return out, nil
}

// targets returns the addresses that are meant: one, of any Service or of none, or those of
// the frontends of a Service.
func (s *sight) targets(client netip.AddrPort) (out []lb.AddrPort, err error) {
	sameFamily := func(a netip.Addr) bool { return !client.IsValid() || a.Is4() == client.Addr().Is4() }
	if at, ok := parseTarget(s.wanted.word); ok {
		if !sameFamily(at.Addr) {
			return nil, fmt.Errorf("a client at %s cannot ask %s: they are of different families", client.Addr(), at.Addr)
		}
		return []lb.AddrPort{at}, nil
	}
	g := frontends.untyped()
	var all []item
	err = g.each(s, func(one item) error {
		all = append(all, one)
		return nil
	})
	if err != nil {
		return nil, err
	}
	for _, one := range all {
		if f := *one.(*frontend); !f.at.Addr.IsUnspecified() && sameFamily(f.at.Addr) { // a NodePort is at an address of the node
			out = append(out, f.at)
		}
	}
	if len(out) == 0 {
		return nil, g.nothingIs(s.wanted.word)
	}
	return out, g.oneMeant(all, s.wanted)
}

// parseTarget reads ADDRESS:PORT, with or without protocol: TCP is usual.
func parseTarget(word string) (lb.AddrPort, bool) {
	address, protocol, _ := strings.Cut(word, "/")
	at, err := netip.ParseAddrPort(address)
	for _, p := range []lb.Protocol{lb.TCP, lb.UDP, lb.SCTP} {
		if err == nil && (protocol == "" || strings.EqualFold(protocol, p.String())) {
			return lb.AddrPort{Addr: at.Addr().Unmap(), Port: at.Port(), Protocol: p}, true
		}
	}
	return lb.AddrPort{}, false
}

// read reads what the maps say of the frontend that the client means.
func (x *explanation) read(s *sight) error {
	x.Client, x.Decided = x.asker.String(), "at connect()"
	if x.asker.at.IsValid() {
		x.Decided = "packet by packet"
	}
	at, f, found, err := s.Meant(x.at)
	if err != nil || !found {
		return err
	}
	service, err := s.Service(f.Service)
	if err != nil {
		return err
	}
	x.Frontend, x.Kind, x.Service, x.port = at.String(), f.Kind.String(), service.String(), service
	x.Policy = f.Words()
	index := lb.Internal
	if x.asker.at.IsValid() {
		index = lb.External
	}
	v := f.Views[index]
	x.why = v.Why
	x.View, x.Why, x.Algorithm = lb.ViewName(index), v.Why.String(), cmp.Or(v.Algorithm, f.Algorithm()).String()
	if f.AffinityTimeout > 0 && f.Carried && index == lb.External {
		x.Affinity = "a client keeps its backend by the hash of its address, without a time"
	} else if f.AffinityTimeout > 0 {
		x.Affinity = fmt.Sprintf("a client that comes again within %ds keeps its backend", f.AffinityTimeout)
	}
	if f.Filtered {
		if err := x.readRanges(s, f.Service); err != nil {
			return err
		}
	}
	if v.Table.Size == 0 {
		x.Refused = "no_endpoint"
		if v.NoLocal {
			x.Refused = "no_local_endpoint"
		}
	}
	return x.readShares(s, f, index)
}

func (x *explanation) readRanges(s *sight, service uint32) error {
	all, err := s.SourceRanges()
	for r := range all {
		if r.Service == service && r.Prefix.Addr().Is4() == x.at.Addr.Is4() {
			x.Ranges = append(x.Ranges, r.Prefix.String())
		}
	}
	slices.Sort(x.Ranges)
	return err
}

// decideAtConnect says what becomes of a process on this node, by what the maps say.
func (x *explanation) decideAtConnect(s *sight) (err error) {
	if x.Frontend == "" {
		x.Refused, err = s.Unserved(x.at.Addr)
	}
	switch {
	case err != nil:
		return err
	case x.Refused != "":
		x.refuse()
	case x.Frontend == "":
		return x.leaveCall(s, "connect()")
	case x.Ranges != nil:
		x.Outcome = "connect() goes straight to one of the backends, if its source address is in a range"
	default:
		x.Outcome = "connect() goes straight to one of the backends"
	}
	return nil
}
