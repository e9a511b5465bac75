package cli

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/pkg/agent"
	"github.com/headgate/headgate/pkg/command"
	"github.com/headgate/headgate/pkg/datapath"
	"github.com/headgate/headgate/pkg/migrate"
	"github.com/headgate/headgate/pkg/netdev"
)

func newCleanup(e *env) *cobra.Command {
	return &cobra.Command{
		Use:   "cleanup",
		Short: "Remove Headgate from the kernel",
		Long: `Detaches the programs, removes the programs and maps that are pinned below --bpf-root, and says
what stays. TCP connections of sockets of this node go on. Those of clients outside, which the
programs translate, are handed over to the kernel's connection tracking, where it translates
addresses (as with kube-proxy): they go on, too. Connected UDP sockets that have a backend, or wait for one, are
told (ECONNABORTED), since nobody would move them to another one. It is refused while an agent runs.`,
		Args: command.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return e.cleanUp(cmd.OutOrStdout()) },
	}
}

// cleanUp removes what is pinned, and says what it removed and what stays.
func (e *env) cleanUp(w io.Writer) error {
	pins, err := datapath.Pins(e.bpfRoot)
	if err != nil {
		return fmt.Errorf("clean up: %w", needsRoot(err))
	}
	leaves := e.leaves()
	done, err := migrate.Remove(e.bpfRoot)
	if err != nil {
		return fmt.Errorf("clean up: %w", needsRoot(err))
	}
	kept, err := agent.StateFiles(e.state)
	if err != nil {
		return err
	}
	value := struct {
		Root       string   `json:"root"`
		Removed    int      `json:"removed"`
		HandedOver int      `json:"handedOver"` // connections of clients outside, to the kernel
		Lost       int      `json:"lost"`       // of these, those that the kernel did not take
		Told       int      `json:"told"`       // sockets
		Kept       []string `json:"kept"`
	}{e.bpfRoot, pins, done.HandedOver.Done, done.HandedOver.Left, done.Told, append([]string{}, kept...)}
	if pins == 0 {
		rows := append([][]string{{"removed", "nothing: nothing is pinned below " + e.bpfRoot}}, staying(leaves)...)
		return e.Print(w, command.Table{Rows: rows, Value: value})
	}
	rows := [][]string{
		{"removed", fmt.Sprintf("%d programs, links and maps below %s", pins, e.bpfRoot)},
		{"told", fmt.Sprintf("%d connected UDP sockets: nobody would move them to another backend", done.Told)},
		{"stays", "TCP connections of sockets of this node: they go straight to their backends"},
	}
	if h := done.HandedOver; h.Done > 0 {
		rows = append(rows, []string{"stays", fmt.Sprintf("%d connections of clients outside, which the kernel's connection tracking translates now", h.Done)})
	}
	if h := done.HandedOver; h.Why != nil {
		rows = append(rows, []string{"lost", fmt.Sprintf("%d connections of clients outside: %v", h.Left, h.Why)})
	}
	if done.Untold != nil {
		rows = append(rows, []string{"not told", done.Untold.Error()})
	}
	rows = append(rows, staying(append(leaves, kept...))...)
	return e.Print(w, command.Table{Rows: rows, Value: value})
}

func staying(all []string) (rows [][]string) {
	for _, what := range all {
		rows = append(rows, []string{"stays", what})
	}
	return rows
}

// leaves returns what Headgate has made outside of its pins, and leaves there.
func (e *env) leaves() (all []string) {
	if r, err := agent.ReadReport(e.state, e.bpfRoot); err == nil && r.Conntrack {
		all = append(all, "size and timeouts of the kernel's connection tracking, as the agent set them")
	}
	if kept, _, err := netdev.KeepsNAT(); err == nil && kept {
		all = append(all, "table inet "+netdev.NATTable+" of nftables, for connections of kube-proxy's time: end them by nft delete table inet "+netdev.NATTable)
	}
	i, err := datapath.Inspect(e.bpfRoot)
	if err != nil {
		return all
	}
	defer i.Close()
	status, err := i.Status()
	if err != nil {
		return all
	}
	var names []string
	for _, d := range status.Devices {
		if slices.ContainsFunc(d.Hooks, func(h datapath.Hook) bool { return h.By == "clsact" }) {
			names = append(names, d.Name)
		}
	}
	if len(names) > 0 {
		all = append(all, "an empty clsact qdisc on "+strings.Join(names, ", "))
	}
	return all
}

// needsRoot says what to do about a missing permission.
func needsRoot(err error) error {
	if errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("%w; run it with sudo", err)
	}
	return err
}
