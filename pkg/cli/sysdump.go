package cli

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/headgate/headgate/pkg/agent"
	"github.com/headgate/headgate/pkg/command"
	"github.com/headgate/headgate/pkg/lb"
)

// sysdump is what headgate sysdump says.
type sysdump struct {
	command.Type
	File    string   `json:"file"`
	Bytes   int64    `json:"bytes"`
	Files   []string `json:"files"`
	Missing []string `json:"missing"` // what could not be had, and why
}

func newSysdump(e *env) *cobra.Command {
	return &cobra.Command{
		Use:   "sysdump [FILE | -]",
		Short: "Collect what is known of this node in one file, for whoever looks into a fault",
		Long: `Writes a tar.gz with every noun and the status as JSON, what the agent answers (metrics, settings, the end
of its log, the difference between kernel and source), and facts of the kernel. What cannot be had, as
where no agent runs, is named in missing.txt.

Names and addresses of Services and backends are in it, and clients' addresses. Keys, tokens,
certificates and annotations are not, whatever the agent was given. "-" writes to standard output, as a
pod needs it.`,
		Args: atMostOne,
		RunE: func(cmd *cobra.Command, args []string) error {
			limitGarbage(garbage / 2) // files are kept beside what lists take
			if err := e.mayRead(); err != nil {
				return err
			}
			d := sysdump{Type: command.TypeOf("Sysdump"), Files: []string{}, Missing: []string{}}
			d.File = "headgate-sysdump-" + time.Now().UTC().Format("20060102T150405Z") + ".tar.gz"
			if len(args) > 0 {
				d.File = args[0]
			}
			if d.File == "-" {
				return d.pack(cmd, e, cmd.OutOrStdout())
			}
			if err := d.write(cmd, e); err != nil {
				return fmt.Errorf("write %s: %w", d.File, err)
			}
			t := command.Table{Value: d, Rows: [][]string{{"wrote", fmt.Sprintf("%s, %d files in %.1f KiB", d.File, len(d.Files), float64(d.Bytes)/1024)}}}
			for _, m := range d.Missing {
				t.Rows = append(t.Rows, []string{"missing", m})
			}
			return e.Print(cmd.OutOrStdout(), t)
		},
	}
}

// write writes the file, for the user alone, whole or not at all.
func (d *sysdump) write(cmd *cobra.Command, e *env) error {
	f, err := os.CreateTemp(filepath.Dir(d.File), filepath.Base(d.File)+".*")
	if err != nil {
		return err
	}
	err = d.pack(cmd, e, f)
	if info, failed := f.Stat(); failed == nil {
		d.Bytes = info.Size()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), d.File)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

// pack writes the archive.
func (d *sysdump) pack(cmd *cobra.Command, e *env, to io.Writer) error {
	packed := gzip.NewWriter(to)
	archive := tar.NewWriter(packed)
	return errors.Join(d.collect(cmd, e, archive), archive.Close(), packed.Close())
}

// collect puts everything into the archive.
func (d *sysdump) collect(cmd *cobra.Command, e *env, to *tar.Writer) error {
	ctx, cancel := patience(cmd.Context(), e)
	defer cancel()
	for _, of := range dumped(cmd.Root()) {
		debug.FreeOSMemory() // which the one before has left
		f := newDumpedFile(of[0] + ".json")
		if err := d.put(to, f, e.run(ctx, of, f)); err != nil {
			return err
		}
	}
	for _, from := range []struct{ name, what string }{{"metrics.txt", agent.Metrics}, {"settings.json", agent.Settings}, {"agent.log", agent.Log}} {
		f := newDumpedFile(from.name)
		text, err := e.place().AskText(ctx, from.what)
		if err := d.put(to, f, errors.Join(err, f.keep(text))); err != nil {
			return err
		}
	}
	facts := newDumpedFile("kernel.txt")
	if err := d.put(to, facts, facts.keep(kernelFacts())); err != nil {
		return err
	}
	missing := newDumpedFile("missing.txt")
	return d.put(to, missing, missing.keep([]byte(strings.Join(d.Missing, "\n")+"\n")))
}

// patience returns what ends questions to the agent. One that hangs is when somebody needs a sysdump most: it is waited
// for once, not with each question.
func patience(ctx context.Context, e *env) (context.Context, context.CancelFunc) {
	if err := e.place().AskReady(ctx); errors.Is(err, context.DeadlineExceeded) {
		return context.WithTimeout(ctx, time.Second)
	}
	return context.WithCancel(ctx)
}

// put adds a file, or says why there is none.
func (d *sysdump) put(to *tar.Writer, f *dumpedFile, err error) error {
	if err != nil {
		d.Missing = append(d.Missing, f.name+": "+lb.Printable(err.Error()))
		return nil
	}
	d.Files = append(d.Files, f.name)
	return f.pack(to)
}

// dumped returns the commands whose output is collected: all nouns, and what is said of the node.
func dumped(root *cobra.Command) [][]string {
	all := [][]string{{"version"}, {"status"}, {"diff"}}
	for _, c := range root.Commands() {
		for _, below := range c.Commands() {
			if below.Name() == "list" {
				all = append(all, []string{c.Name(), "list"})
				if c.Name() == "flow" {
					all[len(all)-1] = append(all[len(all)-1], "--all")
				}
			}
		}
	}
	return all
}

// run has a command print for programs. That something is not well is no error.
func (e *env) run(ctx context.Context, args []string, to io.Writer) error {
	root := newRoot(&env{version: e.version, until: ctx})
	root.SetArgs(append(slices.Clone(args), "-o", "json", "--bpf-root", e.bpfRoot, "--state-dir", e.state))
	root.SetOut(to)
	root.SetErr(io.Discard)
	if err := root.ExecuteContext(ctx); !errors.Is(err, errDegraded) {
		return err
	}
	return nil
}

// kernelSettings are files of the kernel that say how packets fare.
var kernelSettings = []string{
	"/proc/sys/kernel/unprivileged_bpf_disabled", "/proc/sys/net/core/bpf_jit_enable", "/proc/sys/kernel/bpf_stats_enabled", "/sys/kernel/security/lockdown",
	"/proc/sys/net/ipv4/ip_forward", "/proc/sys/net/ipv6/conf/all/forwarding", "/proc/sys/net/ipv4/conf/all/rp_filter", "/proc/sys/net/ipv4/ip_local_port_range",
	"/proc/sys/net/netfilter/nf_conntrack_count", "/proc/sys/net/netfilter/nf_conntrack_max", "/proc/loadavg", "/proc/meminfo",
}

// kernelFacts returns what is known of the kernel, a line each. What it was booted with is left
// out: there may be secrets in it.
func kernelFacts() []byte {
	var out bytes.Buffer
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		fmt.Fprintf(&out, "release %s\nversion %s\nmachine %s\n", unix.ByteSliceToString(u.Release[:]), unix.ByteSliceToString(u.Version[:]), unix.ByteSliceToString(u.Machine[:]))
	}
	fmt.Fprintf(&out, "CPUs %d\n", runtime.NumCPU())
	for _, path := range kernelSettings {
		text, err := os.ReadFile(path)
		if err != nil {
			fmt.Fprintf(&out, "%s: %s\n", path, err)
			continue
		}
		for line := range strings.Lines(string(text)) {
			fmt.Fprintf(&out, "%s %s\n", path, strings.TrimRight(line, "\n"))
		}
	}
	return out.Bytes()
}
