package command

import (
	"bytes"
	"fmt"
	"io"
	"runtime"
	"strings"
	"text/tabwriter"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/headgate/headgate/pkg/lb"
)

// Output is the form in which a command prints: text for people, or JSON.
type Output struct {
	JSON   bool
	Pretty bool // indented JSON
	format format
}

// AddFlags adds the flags by which a form is asked for.
func (o *Output) AddFlags(flags *pflag.FlagSet) {
	flags.BoolVarP(&o.JSON, "json", "j", false, "print JSON")
	flags.BoolVarP(&o.Pretty, "pretty", "p", false, "print indented JSON")
}

// IsJSON says whether JSON was asked for, in either form.
func (o Output) IsJSON() bool { return o.JSON || o.Pretty }

// ForPrograms says whether something else than text was asked for.
func (o Output) ForPrograms() bool { return o.IsJSON() || o.format != "" && !o.IsWide() }

// Table is what a command prints: rows for people, a value for programs.
type Table struct {
	Header []string
	Rows   [][]string
	Value  any      // the same for programs
	Names  []string // kind/name of each
	// Stream is a long list in place of Rows, Value and Names, nil for none.
	Stream *Stream
}

// ShowsAll says whether all is shown that is known of each.
func (o Output) ShowsAll() bool { return o.IsWide() || o.ForPrograms() && !o.WantsNames() }

// WantsNames says whether nothing but names was asked for.
func (o Output) WantsNames() bool { return o.format == formatName }

// Print writes a table in the form that was asked for.
func (o Output) Print(w io.Writer, t Table) error {
	if t.Stream != nil {
		return o.printStream(w, t.Header, t.Stream)
	}
	w = Printable(w)
	switch {
	case o.format == formatName:
		for _, name := range t.Names {
			if _, err := fmt.Fprintln(w, lb.Printable(name)); err != nil {
				return err
			}
		}
		return nil
	case o.ForPrograms():
		return o.printValue(w, t.Value)
	}
	var text bytes.Buffer
	tw := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	if len(t.Header) > 0 {
		writeRow(tw, t.Header)
	}
	for _, row := range t.Rows {
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

// Printable returns a writer to people: lines and tabs pass, what else a terminal would
// obey does not. Each Write is to be whole characters.
func Printable(w io.Writer) io.Writer { return printable{w} }

type printable struct{ io.Writer }

func (p printable) Write(b []byte) (int, error) {
	if bytes.IndexFunc(b, isNoText) < 0 {
		return p.Writer.Write(b)
	}
	var out strings.Builder
	for rest := string(b); rest != ""; {
		text := rest
		if i := strings.IndexAny(rest, "\n\t"); i >= 0 {
			text = rest[:i]
		}
		layout := rest[len(text):min(len(text)+1, len(rest))]
		out.WriteString(lb.Printable(text) + layout)
		rest = rest[len(text+layout):]
	}
	if _, err := io.WriteString(p.Writer, out.String()); err != nil {
		return 0, err
	}
	return len(b), nil
}

func isNoText(r rune) bool {
	return r == utf8.RuneError || r != '\n' && r != '\t' && !unicode.IsPrint(r)
}

func writeRow(w io.Writer, cells []string) {
	for i, c := range cells {
		if i > 0 {
			fmt.Fprint(w, "\t")
		}
		fmt.Fprint(w, lb.Printable(c))
	}
	fmt.Fprintln(w)
}

// NewVersion returns the command "version" of a program.
func NewVersion(o *Output, program, version string) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Show the version of this program",
		Args:  NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			platform := runtime.GOOS + "/" + runtime.GOARCH
			return o.Print(cmd.OutOrStdout(), Table{
				Rows:  [][]string{{program, version}, {"go", runtime.Version()}, {"platform", platform}},
				Value: map[string]string{program: version, "go": runtime.Version(), "platform": platform},
			})
		},
	}
}
