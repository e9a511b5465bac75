package cli

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/pkg/command"
	"github.com/headgate/headgate/pkg/datapath"
)

// inspect returns a command's RunE that prints what look finds in the kernel.
func (e *env) inspect(look func(r *datapath.Reader, args []string) (command.Table, error)) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		var t command.Table
		err := datapath.Look(e.open, func(r *datapath.Reader) (err error) {
			t, err = look(r, args)
			return err
		})
		if errors.Is(err, fs.ErrPermission) {
			return fmt.Errorf("read %s: permission denied; run it with sudo", e.bpfRoot)
		}
		if err != nil {
			return err
		}
		return e.Print(cmd.OutOrStdout(), t)
	}
}

// open returns a reader of what is pinned.
func (e *env) open() (*datapath.Reader, error) { return datapath.Inspect(e.bpfRoot) }
