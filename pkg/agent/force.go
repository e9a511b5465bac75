package agent

import (
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/pkg/datapath"
	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/reconciler"
	"github.com/headgate/headgate/pkg/source/convert"
)

// restoredFor is how long the report and an event tell of programs that were put
// back in force.
const restoredFor = time.Minute

// Force implements reconciler.Observer.
func (a *statusServer) Force(f reconciler.Force) {
	var problems []lb.Problem
	about := func(reason string, err error, remedy string) {
		for _, p := range convert.Problems(err) { // each device is one
			problems = append(problems, lb.Problem{Scope: lb.ScopeNode, Object: "Node " + a.cfg.NodeName, Field: "programs", Reason: reason + ": " + p.Reason, Remedy: remedy})
		}
	}
	if len(f.Restored) > 0 {
		a.restored = restored{what: f.Restored, until: time.Now().Add(restoredFor)}
		a.metrics.CountRestored(len(f.Restored))
	}
	if time.Now().Before(a.restored.until) {
		problems = a.restored.problems("Node "+a.cfg.NodeName, a.cfg.Datapath.Root)
	}
	about("cannot be pinned and end with the agent", f.Unpinned, "mount a BPF file system where it was")
	unfit := ""
	if outOfForce := convert.Problems(f.OutOfForce); len(outOfForce) > 0 {
		unfit = "programs are out of force: " + outOfForce[0].Reason
	}
	about("are out of force", f.OutOfForce, "they are attached again as soon as that is possible")
	about("cannot be attached, packets of the device are not balanced", f.Devices, "look at the device, or leave it out with --devices")
	problems = lb.Bounded("the node", problems)
	a.proxy.SetUnfit(unfit)
	a.forceLog.Set(problems)
	a.problems.setForce(problems)
}

// restored is what was put back in force.
type restored struct {
	what  []string  // as reconciler.Force has it
	until time.Time // when it is told of no more
}

// problems returns what to tell of it, of programs and of pins below a directory.
func (r restored) problems(object, root string) (out []lb.Problem) {
	programs := slices.DeleteFunc(slices.Clone(r.what), func(name string) bool { return name == datapath.RestoredPins })
	if len(programs) > 0 {
		out = append(out, lb.Problem{Scope: lb.ScopeNode, Object: object, Field: "programs", Value: strings.Join(programs, ", "),
			Reason: "were detached, and the agent has attached them again", Remedy: "find out what detaches programs on this node"})
	}
	if len(programs) < len(r.what) {
		out = append(out, lb.Problem{Scope: lb.ScopeNode, Object: object, Field: "pins below " + root,
			Reason: "were removed, and the agent has made them again", Remedy: "find out what removes files there on this node"})
	}
	return out
}
