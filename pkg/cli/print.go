package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/pkg/datapath"
)

// table is what a noun prints: rows for people, values for programs.
type table struct {
	header []string
	rows   [][]string
	value  any // the same for JSON
}

// print writes a table in the form that was asked for.
func (e *env) print(w io.Writer, t table) error {
	if e.json || e.pretty {
		encoder := json.NewEncoder(w)
		encoder.SetEscapeHTML(false)
		if e.pretty {
			encoder.SetIndent("", "  ")
		}
		return encoder.Encode(t.value)
	}
	var text bytes.Buffer
	tw := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	if len(t.header) > 0 {
		writeRow(tw, t.header)
	}
	for _, row := range t.rows {
		writeRow(tw, row)
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	for line := range bytes.Lines(text.Bytes()) {
		if _, err := fmt.Fprintf(w, "%s\n", bytes.TrimRight(line, " \n")); err != nil {
			return err
		}
	}
	return nil
}

func writeRow(w io.Writer, cells []string) {
	for i, c := range cells {
		if i > 0 {
			fmt.Fprint(w, "\t")
		}
		fmt.Fprint(w, c)
	}
	fmt.Fprintln(w)
}

// inspect returns a command's RunE that prints what look finds in the kernel.
func (e *env) inspect(look func(i *datapath.Inspector, args []string) (table, error)) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		i, err := datapath.Inspect(e.bpfRoot)
		if err != nil {
			return err
		}
		defer i.Close()
		t, err := look(i, args)
		if err != nil {
			return err
		}
		return e.print(cmd.OutOrStdout(), t)
	}
}
