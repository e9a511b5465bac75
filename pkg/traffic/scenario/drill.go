package scenario

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/pkg/traffic/contender"
	"github.com/headgate/headgate/pkg/traffic/load"
	"github.com/headgate/headgate/pkg/traffic/result"
)

// The kinds of drills.
const (
	replaceEndpoint = "replace-endpoint" // a server comes in the place of another one
	restart         = "restart"          // the load balancer ends and starts again
	killBackend     = "kill-backend"     // a server ends, and nobody is told
)

var drillKinds = []string{replaceEndpoint, restart, killBackend}

// Drill is what happens to a contender in every run, and what the runs are about.
type Drill struct {
	Kind string        `yaml:"kind"`
	At   time.Duration `yaml:"at"` // after counting has begun
	// Grace is how long a server that is replaced still answers, 0: it ends when
	// the change is written.
	Grace  time.Duration `yaml:"grace"`
	Signal string        `yaml:"signal"` // of restart: TERM or KILL
	Pause  time.Duration `yaml:"pause"`  // of restart: until it starts again
	How    string        `yaml:"how"`    // of kill-backend: silent or refuses
	// Slow is from when on an operation counts as a slow one, 0 means defaultSlow.
	Slow time.Duration `yaml:"slow"`
}

const defaultSlow = 100 * time.Millisecond

// maxChurn bounds how many changes a second there may be.
const maxChurn = 1000

// validateDrill returns what is wrong with drill and churn, and what to do.
func (s Scenario) validateDrill() error {
	if err := s.validateChurn(); err != nil || s.Drill == nil {
		return err
	}
	d := s.Drill
	shortest := s.Load.Duration
	if s.Quick.Duration > 0 {
		shortest = min(shortest, s.Quick.Duration)
	}
	switch {
	case !slices.Contains(drillKinds, d.Kind):
		return fmt.Errorf("drill.kind is %q: there are %s", d.Kind, strings.Join(drillKinds, ", "))
	case d.At <= 0 || d.At+d.Grace+d.Pause >= shortest:
		return fmt.Errorf("drill.at is %s and grace or pause %s: all of it is to be within the %s that are measured", d.At, d.Grace+d.Pause, shortest)
	case d.Grace < 0 || d.Pause < 0 || d.Slow < 0:
		return errors.New("drill: grace, pause and slow cannot be negative")
	case d.Grace > 0 && d.Kind != replaceEndpoint:
		return fmt.Errorf("drill.grace is of %s", replaceEndpoint)
	case d.Kind == restart && d.Signal != "TERM" && d.Signal != "KILL":
		return fmt.Errorf("drill.signal is %q: it is TERM or KILL", d.Signal)
	case d.Kind != restart && (d.Signal != "" || d.Pause > 0):
		return fmt.Errorf("drill.signal and drill.pause are of %s", restart)
	case d.Kind == killBackend && d.How != "silent" && d.How != "refuses":
		return fmt.Errorf("drill.how is %q: it is silent or refuses", d.How)
	case d.Kind != killBackend && d.How != "":
		return fmt.Errorf("drill.how is of %s", killBackend)
	case d.Kind == restart && len(s.Churn) > 0:
		return fmt.Errorf("drill %s and churn exclude each other: rules that are applied again are those from the beginning", restart)
	}
	return s.validateTaken()
}

// validateTaken is about drills that take a server away.
func (s Scenario) validateTaken() error {
	d := s.Drill
	for _, name := range s.Contenders {
		if h, ok := s.Hooks[name]; ok && d.Kind == restart && h.Restart == "" {
			return fmt.Errorf("drill %s of contender %q: hooks.%s.restart is missing", d.Kind, name, name)
		} else if ok && d.Kind == replaceEndpoint && h.Change == "" {
			return fmt.Errorf("drill %s of contender %q: hooks.%s.change is missing", d.Kind, name, name)
		}
	}
	switch {
	case d.Kind == restart:
		return nil
	case s.Ask != "one":
		return fmt.Errorf("ask is %s: of drill %s write one, it is about a server of one Service", s.Ask, d.Kind)
	case slices.Min(s.Endpoints) < 2:
		return fmt.Errorf("endpoints is %d: drill %s needs at least 2", slices.Min(s.Endpoints), d.Kind)
	case s.Load.Kind != load.CRR && (s.Load.Kind != load.RR || s.Load.PerSocket == 0):
		return fmt.Errorf("load.kind is %s: drill %s needs new connections whose answers name the server: crr, or rr with per-socket", s.Load.Kind, d.Kind)
	}
	return nil
}

func (s Scenario) validateChurn() error {
	for _, rate := range slices.Concat(s.Churn, s.Quick.Churn) {
		switch {
		case rate < 0 || rate > maxChurn:
			return fmt.Errorf("churn is %v: changes a second go from 0, which is none, to %d", rate, maxChurn)
		case rate > 0 && slices.Min(slices.Concat([]int(s.Services), []int(s.Quick.Services))) < 2:
			return errors.New("churn needs at least 2 Services: the one in the middle stays as it is")
		case rate > 0 && slices.Min(s.Endpoints) < 2:
			return fmt.Errorf("endpoints is %d: churn needs at least 2, one of which leaves and comes back", slices.Min(s.Endpoints))
		}
		for _, name := range s.Contenders {
			if h, ok := s.Hooks[name]; ok && rate > 0 && h.Change == "" {
				return fmt.Errorf("churn of contender %q: hooks.%s.change is missing", name, name)
			}
		}
	}
	return nil
}

// takesServers says whether contenders need servers that can be taken away.
func (d *Drill) takesServers() bool { return d != nil && d.Kind != restart }

// actions are the events of a drill, the one that it is about first.
func (d *Drill) actions(p *contender.Contender) []load.Action {
	if d == nil {
		return nil
	}
	quiet := func(do func(context.Context) error) func(context.Context) (string, error) {
		return func(ctx context.Context) (string, error) { return "", do(ctx) }
	}
	switch d.Kind {
	case replaceEndpoint:
		actions := []load.Action{{At: d.At, Name: d.name(), Do: quiet(func(ctx context.Context) error { return p.Replace(ctx, d.Grace > 0) })}}
		if d.Grace > 0 {
			actions = append(actions, load.Action{At: d.At + d.Grace, Name: "the old server ends", Do: quiet(p.EndReplaced)})
		}
		return actions
	case restart:
		return []load.Action{{At: d.At, Name: d.name(), Do: quiet(func(ctx context.Context) error { return p.Restart(ctx, d.Signal == "KILL", d.Pause) })}}
	}
	return []load.Action{{At: d.At, Name: d.name(), Do: quiet(func(ctx context.Context) error { return p.Kill(ctx, d.How == "silent") })}}
}

// name is what happens.
func (d *Drill) name() string {
	switch d.Kind {
	case replaceEndpoint:
		return "an endpoint is replaced"
	case restart:
		return "SIG" + d.Signal + " and start"
	}
	return map[string]string{"silent": "a server dies silently", "refuses": "a server ends and refuses"}[d.How]
}

// note notes in a run what came of the drill.
func (d *Drill) note(run *result.Run) error {
	i := slices.IndexFunc(run.Events, func(e result.Event) bool { return e.Name == d.name() })
	if i < 0 {
		return nil // the run was ended before
	}
	for _, e := range run.Events {
		if strings.HasPrefix(e.Detail, load.Failed) {
			return fmt.Errorf("drill %s: %s: %s", d.Kind, e.Name, e.Detail)
		}
	}
	old, replacement := "", ""
	if d.Kind == replaceEndpoint {
		old, replacement = contender.Old, contender.Replacement
	}
	slow := d.Slow
	if slow == 0 {
		slow = defaultSlow
	}
	run.SetDrill(d.name(), run.Events[i], old, replacement, slow)
	return nil
}
