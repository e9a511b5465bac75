package cli

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/pkg/command"
	"github.com/headgate/headgate/pkg/datapath"
	"github.com/headgate/headgate/pkg/lb"
)

// flushed is what headgate flush says.
type flushed struct {
	command.Type
	Affinities int `json:"affinities"`
	Flows      int `json:"flows"` // directions: two or four for each flow
}

// flushOnly is what is forgotten: one of these, or all.
type flushOnly string

const (
	flushAll        flushOnly = "all"
	flushAffinities flushOnly = "affinities"
	flushFlows      flushOnly = "flows"
)

func newFlush(e *env) *cobra.Command {
	var namespace string
	var only flushOnly
	cmd := &cobra.Command{
		Use:   "flush {ADDRESS[:PORT[/PROTOCOL]] | [NAMESPACE/]SERVICE[:PORT]}",
		Short: "Forget affinities and flows of a Service or a backend",
		Long: `Forgets which backend the clients of a Service had last (session affinity), and its flows of packets;
or those of a backend, by its address. The next connection or datagram of a client gets a backend
anew. TCP connections of clients outside the node are reset with their next packet, unless session
affinity or a hash finds their backend again. Connections of sockets on this node go straight to their
backends, and go on.

It asks nothing, and says how many it has forgotten.`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return errors.New("flush what? Write an address of a backend, or [NAMESPACE/]SERVICE[:PORT]; headgate service list shows them")
			}
			return atMostOne(cmd, args)
		},
		ValidArgsFunction: backends.untyped().complete(e),
		RunE: func(cmd *cobra.Command, args []string) error {
			said := flushed{Type: command.TypeOf("Flushed")}
			err := e.look(func(r *datapath.Reader) error {
				return said.flush(&sight{Reader: r, wanted: wanted{word: args[0], namespace: namespace}, env: e}, only)
			})
			if err != nil {
				return err
			}
			return e.Print(cmd.OutOrStdout(), command.Table{Value: said, Rows: [][]string{
				{"affinities", fmt.Sprint(said.Affinities)}, {"flows", fmt.Sprintf("%d directions", said.Flows)},
			}})
		},
	}
	cmd.Flags().StringVarP(&namespace, "namespace", "n", "", "namespace of the Service")
	cmd.Flags().Var(oneOf(&only, flushAll, flushAll, flushAffinities, flushFlows), "only", "forget all, or only affinities, which ends no connection, or only flows")
	return cmd
}

// flush forgets what is meant.
func (f *flushed) flush(s *sight, only flushOnly) error {
	is, err := s.meant()
	if err != nil {
		return err
	}
	if only != flushFlows { // first: who loses its flow is to choose anew
		n, err := s.FlushAffinities(is)
		if f.Affinities += n; err != nil {
			return err
		}
	}
	if only != flushAffinities {
		n, err := s.FlushFlows(is)
		if f.Flows += n; err != nil {
			return err
		}
	}
	return nil
}

// meant returns what tells the Service ports or backends that a word means, by their IDs.
func (s *sight) meant() (is func(service, backend uint32) bool, err error) {
	ports, ids := map[uint32]bool{}, map[uint32]bool{}
	var all []item
	known, err := s.Services()
	if err != nil {
		return nil, err
	}
	for id := range known {
		port, err := s.Service(id)
		if err != nil {
			return nil, err
		}
		if s.wanted.owns(port) {
			ports[id] = true
			all = append(all, service{port: port})
		}
	}
	if len(ports) == 0 {
		for id, b := range s.Backends() {
			if s.wanted.wants(backend{at: b.At, ID: id}) {
				ids[id] = true
			}
		}
	}
	if len(ports)+len(ids) == 0 {
		return nil, fmt.Errorf("no Service or backend is %s: headgate service list and headgate backend list show them", lb.Quote(s.wanted.word))
	}
	is = func(service, backend uint32) bool { return ports[service] || ids[backend] }
	return is, services.untyped().oneMeant(all, s.wanted)
}
