package scenario

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/pkg/traffic/contender"
	"github.com/headgate/headgate/pkg/traffic/load"
	"github.com/headgate/headgate/pkg/traffic/result"
)

// Settings are what a scenario is run with.
type Settings struct {
	RunName   string           // see traffic.RunName
	CgroupTop string           // where cgroups are made
	RunDir    string           // where folders are made
	Headgate  string           // the program of contenders that are Headgate
	Worker    func() *exec.Cmd // runs the loads, see load.Serve
	KubeProxy string           // the program, "" without
	Kernel    contender.Kernel
	Ready     time.Duration // how long a contender may take until it answers, 0 means readyLimit
	Progress  func(text string)
}

// readyLimit is how long a contender may take until it answers: rules of 10,000
// Services take a while.
const readyLimit = 5 * time.Minute

// Run brings all contenders up, each in a topology of its own, and measures them in
// rounds: each round has every contender with every number of Services once, in an
// order of its own, so that whatever else goes on meets all of them. Interrupted,
// it returns what was measured by then.
func (s Scenario) Run(ctx context.Context, settings Settings) (runs []result.Run, err error) {
	var contenders []*contender.Contender
	defer func() {
		for _, p := range contenders {
			err = errors.Join(err, p.Close())
		}
	}()
	for i, c := range s.cases() {
		settings.Progress(fmt.Sprintf("%s: bring up %s", s.Name, c))
		p, err := contender.Start(ctx, settings.complete(s.contender(c), i))
		if err != nil {
			return nil, err
		}
		contenders = append(contenders, p)
	}
	churns := s.churns()
	random := rand.New(rand.NewPCG(3, 4))
	for round := range s.Rounds {
		settings.Progress(fmt.Sprintf("%s: round %d of %d", s.Name, round+1, s.Rounds))
		for _, i := range random.Perm(len(contenders) * len(churns)) {
			if ctx.Err() != nil {
				return runs, nil
			}
			which, churn := i/len(churns), churns[i%len(churns)]
			run, err := s.once(ctx, contenders[which], churn, round == 0)
			if err != nil {
				return runs, err
			}
			run.Labels = s.labels(s.cases()[which], s.labelOf(churn))
			run.Labels[result.RoundLabel] = strconv.Itoa(round + 1)
			runs = append(runs, run)
		}
	}
	if err := s.countPrograms(ctx, contenders, runs); err != nil {
		return runs, err
	}
	return s.inOrder(runs), nil
}

// churns are those of the runs, 0 if there is none.
func (s Scenario) churns() []float64 {
	if len(s.Churn) == 0 {
		return []float64{0}
	}
	return s.Churn
}

// labelOf is the label of runs with a churn, "" if there is none at all.
func (s Scenario) labelOf(churn float64) string { return churnLabel(s.Churn, &churn) }

// complete fills in what is the same for all contenders.
func (settings Settings) complete(spec contender.Spec, i int) contender.Spec {
	spec.RunName = fmt.Sprintf("%s-%d", settings.RunName, i)
	spec.CgroupTop, spec.RunDir, spec.Headgate, spec.Worker, spec.Ready = settings.CgroupTop, settings.RunDir, settings.Headgate, settings.Worker, cmp.Or(settings.Ready, readyLimit)
	spec.KubeProxy, spec.Kernel = settings.KubeProxy, settings.Kernel
	return spec
}

// countTime is how long runs of programs are counted, at most.
const countTime = time.Second

// countPrograms counts runs of BPF programs, in a load of its own behind the
// rounds, and adds them to the last run of each contender.
func (s Scenario) countPrograms(ctx context.Context, contenders []*contender.Contender, runs []result.Run) error {
	spec := s.load()
	spec.Duration = min(spec.Duration, countTime)
	for i, c := range s.cases() {
		last := -1
		for k, r := range runs {
			if r.Use != nil && maps.Equal(unrounded(r), s.labels(c, s.labelOf(s.churns()[0]))) {
				last = k
			}
		}
		if last < 0 || ctx.Err() != nil {
			continue
		}
		programs, err := contenders[i].CountPrograms(ctx, spec, s.Ask == "one")
		if err != nil {
			return err
		}
		runs[last].Use.Programs = programs
	}
	return nil
}

// unrounded are the labels of a run, but for its round.
func unrounded(r result.Run) map[string]string {
	labels := maps.Clone(r.Labels)
	delete(labels, result.RoundLabel)
	return labels
}

// once measures a contender. The generator's ceiling is that of every round: it is
// measured in the first.
func (s Scenario) once(ctx context.Context, p *contender.Contender, churn float64, first bool) (run result.Run, err error) {
	spec := s.load()
	if s.Drill != nil {
		// Whoever asks first ends by a reset, which a load balancer may not believe.
		spec.Mark, spec.Unchecked = s.Drill.At, true
	}
	spec.Ceiling = first && p.Spec.Name == contender.Direct
	stop := func() (*result.Churn, error) { return nil, nil }
	if churn > 0 {
		stop = p.Churn(churn)
	}
	run, err = p.Run(ctx, spec, s.Ask == "one", append(s.actions(p), s.Drill.actions(p)...))
	changes, churnErr := stop()
	if err = errors.Join(err, churnErr); err != nil {
		return run, err
	}
	run.Name, run.Churn = s.Name, changes
	if s.Drill == nil {
		return run, nil
	}
	if err := s.Drill.note(&run); err != nil {
		return run, fmt.Errorf("%s with %d Services: %w", p.Spec.Name, p.Spec.Services, err)
	}
	if ctx.Err() != nil {
		return run, nil // and everything goes
	}
	return run, p.Restore(ctx, s.Drill.How == "silent")
}

// actions are the events, for one contender.
func (s Scenario) actions(p *contender.Contender) []load.Action {
	var actions []load.Action
	for _, e := range s.Events {
		actions = append(actions, load.Action{At: e.At, Name: e.Name, Do: func(ctx context.Context) (string, error) {
			cmd := exec.CommandContext(ctx, "/bin/sh", "-c", e.Command)
			cmd.Env = p.Environment()
			out, err := cmd.CombinedOutput()
			return strings.TrimSpace(string(out)), err
		}})
	}
	return actions
}

// inOrder returns the runs of each case together, and gives all of them the
// ceiling that was measured.
func (s Scenario) inOrder(runs []result.Run) []result.Run {
	var ceiling *result.Ceiling
	for _, r := range runs {
		if r.Ceiling != nil {
			ceiling = r.Ceiling
		}
	}
	var ordered []result.Run
	for _, c := range s.cases() {
		for _, churn := range s.churns() {
			for _, r := range runs {
				if !maps.Equal(unrounded(r), s.labels(c, s.labelOf(churn))) {
					continue
				}
				if ceiling != nil {
					r.SetCeiling(*ceiling)
				}
				ordered = append(ordered, r)
			}
		}
	}
	return ordered
}
