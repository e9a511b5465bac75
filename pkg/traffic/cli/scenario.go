package cli

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/pkg/cgroup"
	"github.com/headgate/headgate/pkg/command"
	"github.com/headgate/headgate/pkg/traffic"
	"github.com/headgate/headgate/pkg/traffic/contender"
	"github.com/headgate/headgate/pkg/traffic/report"
	"github.com/headgate/headgate/pkg/traffic/result"
	"github.com/headgate/headgate/pkg/traffic/scenario"
)

const scenarioLong = `Scenario measures the load of each file on several contenders, such as no load balancer,
Headgate and rule sets of kube-proxy's shape, each in a network of its own, in
interleaved rounds. It prints medians and missed aims, and writes results, plots and
pages. It needs root, and iptables and nft for contenders of these names. docs/bench.md
describes the files.`

// scenarioFlags are the flags of "headgate-bench scenario".
type scenarioFlags struct {
	pictures
	quick     bool
	rounds    int
	kubeProxy string
	headgate  string
	output    string
	markdown  string
	title     string
}

func newScenario(e *env) *cobra.Command {
	var f scenarioFlags
	cmd := &cobra.Command{
		Use:   "scenario FILE...",
		Short: "Measure several load balancers beside each other, as files describe",
		Long:  scenarioLong,
		Args:  cobra.MinimumNArgs(1),
		RunE:  func(cmd *cobra.Command, args []string) error { return e.scenarios(cmd, &f, args) },
	}
	flags := cmd.Flags()
	f.add(flags)
	flags.BoolVar(&f.quick, "quick", false, "measure a small version of each, to test it: do not use its figures")
	flags.IntVar(&f.rounds, "rounds", 0, "number of rounds (default: as the files say)")
	flags.StringVar(&f.kubeProxy, "kube-proxy", "", "kube-proxy program of the contenders kube-proxy-iptables and kube-proxy-nftables (default: leave these out)")
	addHeadgate(flags, &f.headgate)
	flags.StringVarP(&f.output, "output", "o", "", "file to write all results to, as JSON")
	flags.StringVar(&f.markdown, "markdown", "", "file for a page of tables")
	flags.StringVar(&f.title, "title", "Headgate beside its contenders", "title of the pages")
	return cmd
}

func (e *env) scenarios(cmd *cobra.Command, f *scenarioFlags, files []string) error {
	var all []scenario.Scenario
	for _, file := range files {
		s, err := scenario.ReadFile(file)
		if err != nil {
			return err
		}
		if f.quick {
			s = s.Small()
		}
		if f.rounds > 0 {
			s.Rounds = f.rounds
		}
		all = append(all, s)
	}
	versions := map[string]string{}
	if f.kubeProxy != "" {
		version, err := contender.KubeProxyVersion(f.kubeProxy)
		if err != nil {
			return fmt.Errorf("--kube-proxy: %w", err)
		}
		versions["kube-proxy"] = version
	}
	if os.Geteuid() != 0 {
		return errors.New("scenario makes network namespaces: run it as root")
	}
	var err error
	if f.headgate, err = findHeadgate(f.headgate); err != nil {
		return err
	}
	if _, err := removeStale(); err != nil {
		return err
	}
	whole := e.newReport()
	maps.Copy(whole.Meta.Versions, versions)
	page := report.Page{Title: f.title, Intro: scenarioIntro(f.quick)}
	for _, s := range all {
		section, err := e.scenario(cmd, s, f)
		if err != nil {
			return err
		}
		maps.Copy(section.Report.Meta.Versions, versions)
		page.Sections = append(page.Sections, section)
		whole.Runs = append(whole.Runs, section.Report.Runs...)
	}
	whole.Meta.End()
	return e.finishScenarios(cmd, f, whole, page)
}

func scenarioIntro(quick bool) string {
	text := "Written by headgate-bench scenario; nothing in it is written by hand. Everything runs on one machine, clients, servers and what is between them in network namespaces, and shares its CPUs: " +
		"read ratios, not absolute figures. Rounds of all contenders are interleaved; figures are medians of rounds, intervals of 95 % are from a bootstrap over pairs of rounds. " +
		"The rule sets have the shape of kube-proxy's and fewer rules than it writes. CPU time is that of client, servers and load balancer for an operation, with what the kernel does for them. " +
		"docs/bench.md says how all of this is measured."
	if quick {
		text = "This is a quick run: it shows that everything works, and its figures are not to be trusted. " + text
	}
	return text
}

// benchScenario runs one scenario, without the contenders that cannot be.
func (e *env) scenario(cmd *cobra.Command, s scenario.Scenario, f *scenarioFlags) (report.Section, error) {
	section := report.Section{Title: s.Name, Text: s.Text, Report: e.newReport()}
	progress := func(text string) { fmt.Fprintln(command.Printable(cmd.ErrOrStderr()), text) }
	for _, name := range s.Contenders {
		if contender.IsKubeProxy(name) && f.kubeProxy == "" {
			s = s.Without(name)
			note := name + " was skipped: no kube-proxy binary; name one with --kube-proxy"
			section.Notes = append(section.Notes, note)
			progress(s.Name + ": " + note)
		}
	}
	if len(s.Contenders) == 0 {
		return section, nil
	}
	section.Base = s.Contenders[0]
	top, err := cgroup.Root()
	if err != nil {
		return section, err
	}
	self, err := os.Executable()
	if err != nil {
		return section, fmt.Errorf("find the running program: %s", err)
	}
	began := time.Now()
	runs, err := s.Run(cmd.Context(), scenario.Settings{
		RunName: traffic.RunName(namePrefix), CgroupTop: top, RunDir: runDir, Headgate: f.headgate, Worker: worker(self), KubeProxy: f.kubeProxy, Kernel: pinned{},
		Progress: func(text string) { progress(fmt.Sprintf("%5.0fs %s", time.Since(began).Seconds(), text)) },
	})
	if err != nil {
		return section, err
	}
	section.Report.Runs = runs
	section.Report.Meta.End()
	section.Aims = s.Results(runs)
	return section, nil
}

// finishScenarios prints and writes what was measured.
func (e *env) finishScenarios(cmd *cobra.Command, f *scenarioFlags, whole *result.Report, page report.Page) error {
	if f.output != "" {
		if err := whole.WriteFile(f.output); err != nil {
			return err
		}
	}
	if f.markdown != "" {
		if err := page.WriteMarkdownFile(f.markdown); err != nil {
			return err
		}
	}
	if err := f.write(page); err != nil {
		return err
	}
	if e.IsJSON() {
		return whole.Write(command.Printable(cmd.OutOrStdout()))
	}
	return page.WriteText(command.Printable(cmd.OutOrStdout()))
}
