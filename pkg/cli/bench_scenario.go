package cli

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/pkg/cgroup"
	"github.com/headgate/headgate/pkg/traffic"
	"github.com/headgate/headgate/pkg/traffic/peer"
	"github.com/headgate/headgate/pkg/traffic/report"
	"github.com/headgate/headgate/pkg/traffic/result"
	"github.com/headgate/headgate/pkg/traffic/scenario"
)

const benchScenarioLong = `Scenario measures what files say: loads on peers beside each other, such as no load
balancer, Headgate and rule sets of kube-proxy's shape, each in a network of its own, in
interleaved rounds. It prints medians, what fell short of the aims that the files
state, and writes results, plots and pages. It needs root, and iptables and nft for
peers of that name. docs/bench.md says what a file has.`

// scenarioFlags are the flags of "bench scenario".
type scenarioFlags struct {
	pictures
	quick     bool
	rounds    int
	kubeProxy string
	output    string
	markdown  string
	title     string
}

func newBenchScenario(e *env) *cobra.Command {
	var f scenarioFlags
	cmd := &cobra.Command{
		Use:   "scenario FILE...",
		Short: "Measure peers beside each other, as files say",
		Long:  benchScenarioLong,
		Args:  cobra.MinimumNArgs(1),
		RunE:  func(cmd *cobra.Command, args []string) error { return e.benchScenarios(cmd, &f, args) },
	}
	flags := cmd.Flags()
	f.add(flags)
	flags.BoolVar(&f.quick, "quick", false, "measure the small version of each: to see whether it works, no figures to trust")
	flags.IntVar(&f.rounds, "rounds", 0, "measure so many rounds instead of what the files say")
	flags.StringVar(&f.kubeProxy, "kube-proxy", "", "the kube-proxy of peers kube-proxy-iptables and kube-proxy-nftables, which are left out without it")
	flags.StringVarP(&f.output, "output", "o", "", "file to write all results to, as JSON")
	flags.StringVar(&f.markdown, "markdown", "", "file to write a page to, which shows the plots of --plots")
	flags.StringVar(&f.title, "title", "Headgate beside its peers", "of pages")
	return cmd
}

func (e *env) benchScenarios(cmd *cobra.Command, f *scenarioFlags, files []string) error {
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
		version, err := peer.KubeProxyVersion(f.kubeProxy)
		if err != nil {
			return fmt.Errorf("--kube-proxy: %w", err)
		}
		versions["kube-proxy"] = version
	}
	if f.markdown != "" && f.plots == "" {
		return errors.New("--markdown needs --plots: the page shows pictures from there")
	}
	if os.Geteuid() != 0 {
		return errors.New("bench scenario makes network namespaces: run it as root")
	}
	if _, err := removeStaleBench(); err != nil {
		return err
	}
	whole := e.newReport()
	maps.Copy(whole.Meta.Versions, versions)
	page := report.Page{Title: f.title, Intro: scenarioIntro(f.quick)}
	for _, s := range all {
		section, err := e.benchScenario(cmd, s, f.kubeProxy)
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
	text := "Written by headgate bench scenario; nothing in it is written by hand. Everything runs on one machine, clients, servers and what is between them in network namespaces, and shares its CPUs: " +
		"read ratios, not absolute figures. Rounds of all peers are interleaved; figures are medians of rounds, intervals of 95 % are from a bootstrap over pairs of rounds. " +
		"The rule sets have the shape of kube-proxy's and fewer rules than it writes. CPU time is that of client, servers and load balancer for an operation, with what the kernel does for them. " +
		"docs/bench.md says how all of this is measured."
	if quick {
		text = "This is a quick run: it shows that everything works, and its figures are not to be trusted. " + text
	}
	return text
}

// benchScenario runs one scenario, without the peers that cannot be.
func (e *env) benchScenario(cmd *cobra.Command, s scenario.Scenario, kubeProxy string) (report.Section, error) {
	section := report.Section{Title: s.Name, Text: s.Text, Report: e.newReport()}
	progress := func(text string) { fmt.Fprintln(cmd.ErrOrStderr(), text) }
	for _, name := range s.Peers {
		if peer.IsKubeProxy(name) && kubeProxy == "" {
			s = s.Without(name)
			note := name + " was skipped: no kube-proxy binary; name one with --kube-proxy"
			section.Notes = append(section.Notes, note)
			progress(s.Name + ": " + note)
		}
	}
	if len(s.Peers) == 0 {
		return section, nil
	}
	section.Base = s.Peers[0]
	top, err := cgroup.Root()
	if err != nil {
		return section, err
	}
	program, err := os.Executable()
	if err != nil {
		return section, fmt.Errorf("find the running program: %s", err)
	}
	began := time.Now()
	runs, err := s.Run(cmd.Context(), scenario.Settings{
		RunName: traffic.RunName(benchPrefix), CgroupTop: top, RunDir: benchRunDir, Program: program, KubeProxy: kubeProxy, Kernel: pinned{},
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
	if f.html != "" {
		if err := page.WriteHTMLFile(f.html); err != nil {
			return err
		}
	}
	switch {
	case f.markdown != "":
		if err := page.WriteMarkdownFile(f.markdown, f.plots); err != nil {
			return err
		}
	case f.plots != "":
		if err := (&pictures{plots: f.plots}).write(page); err != nil {
			return err
		}
	}
	if e.json || e.pretty {
		return whole.Write(cmd.OutOrStdout())
	}
	return page.WriteText(cmd.OutOrStdout())
}
