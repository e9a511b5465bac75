package scenario

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/pkg/traffic/load"
	"github.com/headgate/headgate/pkg/traffic/peer"
	"github.com/headgate/headgate/pkg/traffic/report"
	"github.com/headgate/headgate/pkg/traffic/result"
)

// Settings are what a scenario is run with.
type Settings struct {
	RunName   string // see traffic.RunName
	CgroupTop string // where cgroups are made
	RunDir    string // where folders are made
	Program   string // headgate
	Progress  func(text string)
}

// readyLimit is how long a peer may take until it answers: rules of 10,000
// Services take a while.
const readyLimit = 5 * time.Minute

// Run brings all peers up, each in a place of its own, and measures them in
// rounds: each round has every peer with every number of Services once, in an
// order of its own, so that whatever else goes on meets all of them. Interrupted,
// it returns what was measured by then.
func (s Scenario) Run(ctx context.Context, settings Settings) (runs []result.Run, err error) {
	var peers []*peer.Peer
	defer func() {
		for _, p := range peers {
			err = errors.Join(err, p.Close())
		}
	}()
	for _, services := range s.Services {
		for _, name := range s.Peers {
			settings.Progress(fmt.Sprintf("%s: bring up %s with %d Services", s.Name, name, services))
			spec := s.peer(name, services)
			spec.RunName = fmt.Sprintf("%s-%d", settings.RunName, len(peers))
			spec.CgroupTop, spec.RunDir, spec.Program, spec.Ready = settings.CgroupTop, settings.RunDir, settings.Program, readyLimit
			p, err := peer.Start(ctx, spec)
			if err != nil {
				return nil, err
			}
			peers = append(peers, p)
		}
	}
	churns := s.Churn
	if len(churns) == 0 {
		churns = []float64{0}
	}
	random := rand.New(rand.NewPCG(3, 4))
	for round := range s.Rounds {
		settings.Progress(fmt.Sprintf("%s: round %d of %d", s.Name, round+1, s.Rounds))
		for _, i := range random.Perm(len(peers) * len(churns)) {
			if ctx.Err() != nil {
				return runs, nil
			}
			run, err := s.once(ctx, peers[i/len(churns)], churns[i%len(churns)], round == 0)
			if err != nil {
				return runs, err
			}
			run.Labels[result.RoundLabel] = strconv.Itoa(round + 1)
			runs = append(runs, run)
		}
	}
	return inOrder(runs, peers, s.Churn), nil
}

// once measures a peer. The generator's ceiling is that of every round: it is
// measured in the first.
func (s Scenario) once(ctx context.Context, p *peer.Peer, churn float64, first bool) (run result.Run, err error) {
	spec := s.load()
	if s.Drill != nil {
		// Whoever asks first ends by a reset, which a load balancer may not believe.
		spec.Mark, spec.Unchecked = s.Drill.At, true
	}
	spec.Ceiling = first && p.Spec.Name == peer.Direct
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
	run.Labels = map[string]string{report.PeerLabel: p.Spec.Name, report.ServicesLabel: strconv.Itoa(p.Spec.Services), "place": s.Place}
	if len(s.Churn) > 0 {
		run.Labels[report.ChurnLabel] = churnLabel(s.Churn, &churn)
	}
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

// actions are the events, for one peer.
func (s Scenario) actions(p *peer.Peer) []load.Action {
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

// inOrder returns the runs of each peer together, and gives all of them the
// ceiling that was measured.
func inOrder(runs []result.Run, peers []*peer.Peer, churns []float64) []result.Run {
	var ceiling *result.Ceiling
	for _, r := range runs {
		if r.Ceiling != nil {
			ceiling = r.Ceiling
		}
	}
	labels := []string{""}
	if len(churns) > 0 {
		labels = nil
		for _, c := range churns {
			labels = append(labels, churnLabel(churns, &c))
		}
	}
	var ordered []result.Run
	for _, p := range peers {
		for _, churn := range labels {
			for _, r := range runs {
				if r.Labels[report.PeerLabel] != p.Spec.Name || r.Labels[report.ServicesLabel] != strconv.Itoa(p.Spec.Services) || r.Labels[report.ChurnLabel] != churn {
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
