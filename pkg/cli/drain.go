package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/pkg/agent"
	"github.com/headgate/headgate/pkg/command"
	"github.com/headgate/headgate/pkg/datapath"
	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/reconciler"
)

// drainResult is what headgate drain and undrain say.
type drainResult struct {
	command.Type
	reconciler.DrainResult
}

// drained is what headgate drain says that is given nothing to do.
type drained struct {
	command.Type
	Drained []string `json:"drained"`
}

const drainWords = "{ADDRESS[:PORT[/PROTOCOL]] | node/NAME}"

func newDrain(e *env) *cobra.Command {
	var force bool
	cmd := &cobra.Command{
		Use:   "drain [" + drainWords + "]",
		Short: "Give backends no new connections, or show which have none",
		Long: `Has the agent of this node give a backend, or all backends on a node, no new connections and no new
clients, whatever their weights say. Connections that they have go on, as do sessions of datagrams;
clients with session affinity get another backend. It is for the clients that this node balances: on
other nodes it is to be said, too (kubectl headgate --all-nodes drain).

What is drained stays so until headgate undrain, also when the agent or the node starts again: it stands
in drained.json in the state directory. A backend is forgotten once no Service has had it for a minute;
a node is not. Where clients of a Service have no other backend it is refused, unless --force is given. So it is on
the node of a backend to which other nodes carry packets (DSR): drain it on all other nodes first.

Without an argument it shows what is drained, whether or not an agent runs.`,
		Args:              atMostOne,
		ValidArgsFunction: backends.untyped().complete(e),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return e.printDrained(cmd)
			}
			d, err := e.drainable(args[0])
			if err != nil {
				return err
			}
			return e.drain(cmd, d, true, force)
		},
	}
	cmd.Flags().BoolVar(&force, "force", false, "also where clients of a Service have no other backend, and are refused then")
	return cmd
}

func newUndrain(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "undrain {" + strings.Trim(drainWords, "{}") + " | all}",
		Short: "Give drained backends connections again",
		Long:  "Takes back headgate drain: of a backend, of a node, or of all.",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return fmt.Errorf("undrain what? Write %s or all; headgate drain shows what is drained", drainWords)
			}
			return atMostOne(cmd, args)
		},
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			d, err := agent.ReadDrained(e.state)
			if err != nil || len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return append(d.Words(), "all"), cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			d, err := e.undrainable(args[0])
			if err != nil {
				return err
			}
			return e.drain(cmd, d, false, false)
		},
	}
	return cmd
}

// drainable returns the backends that a word means, as the kernel has them.
func (e *env) drainable(word string) (lb.Drained, error) {
	if strings.HasPrefix(word, lb.NodeWord) {
		return lb.ParseDrained([]string{word})
	}
	d := lb.Drained{Backends: map[lb.AddrPort]bool{}}
	err := e.look(func(r *datapath.Reader) error {
		for _, b := range r.Backends() {
			if slices.Contains(addressNames(b.At), word) {
				d.Backends[b.At] = true
			}
		}
		if d.IsEmpty() {
			return fmt.Errorf("no backend is %s: write %s, as headgate backend list shows them", lb.Quote(word), drainWords)
		}
		return nil
	})
	return d, err
}

// undrainable returns what a word means of what is drained: it may be gone from the kernel.
func (e *env) undrainable(word string) (lb.Drained, error) {
	all, err := agent.ReadDrained(e.state)
	if err != nil {
		return all, needsRoot(err)
	}
	if word == "all" && !all.IsEmpty() {
		return all, nil
	}
	d := lb.Drained{Backends: map[lb.AddrPort]bool{}, Nodes: map[string]bool{}}
	for b := range all.Backends {
		if slices.Contains(addressNames(b), word) {
			d.Backends[b] = true
		}
	}
	if node, ok := strings.CutPrefix(word, lb.NodeWord); ok && all.Nodes[node] {
		d.Nodes[node] = true
	}
	if d.IsEmpty() {
		return d, fmt.Errorf("%s is not drained: headgate drain shows what is", lb.Quote(word))
	}
	return d, nil
}

func (e *env) drain(cmd *cobra.Command, d lb.Drained, drain, force bool) error {
	result, err := e.place().Drain(cmd.Context(), d, drain, force)
	if err != nil {
		return err
	}
	what := map[bool]string{true: "drained", false: "in use"}[drain]
	rows := [][]string{}
	for _, b := range result.Backends {
		rows = append(rows, []string{what, b})
	}
	if len(rows) == 0 {
		rows = append(rows, []string{what, strings.Join(d.Words(), ", ") + ": no Service has such a backend now"})
	}
	for _, s := range result.Alone {
		rows = append(rows, []string{"refused", "clients of " + s + ": no other backend is left"})
	}
	return e.Print(cmd.OutOrStdout(), command.Table{Rows: rows, Value: drainResult{command.TypeOf("DrainResult"), result}})
}

// printDrained shows what is drained.
func (e *env) printDrained(cmd *cobra.Command) error {
	if err := e.mayRead(); err != nil { // else nothing seems drained where the file is not to be seen
		return err
	}
	d, err := agent.ReadDrained(e.state)
	if err != nil {
		return needsRoot(err)
	}
	t := command.Table{Value: drained{command.TypeOf("Drained"), d.Words()}, Names: d.Words()}
	for _, w := range d.Words() {
		t.Rows = append(t.Rows, []string{w})
	}
	return e.Print(cmd.OutOrStdout(), t)
}
