package agent

import (
	"strings"
	"time"

	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/reconciler"
)

// restoredFor is how long the report and an event tell of programs that were put
// back in force.
const restoredFor = time.Minute

// Force implements reconciler.Observer.
func (a *statusServer) Force(f reconciler.Force) {
	var problems []lb.Problem
	about := func(value, reason, remedy string) {
		problems = append(problems, lb.Problem{Object: "Node " + a.cfg.NodeName, Field: "programs", Value: value, Reason: reason, Remedy: remedy})
	}
	if len(f.Restored) > 0 {
		a.restored = restored{what: strings.Join(f.Restored, ", "), until: time.Now().Add(restoredFor)}
		a.metrics.CountRestored(len(f.Restored))
	}
	if time.Now().Before(a.restored.until) {
		about(a.restored.what, "were detached or had lost their pin, and the agent has put them back", "find out what detaches programs or removes files below "+a.cfg.Datapath.Root+" on this node")
	}
	if f.Unpinned != nil {
		about("", "cannot be pinned and end with the agent: "+f.Unpinned.Error(), "mount a BPF file system where it was")
	}
	unfit := ""
	if f.OutOfForce != nil {
		unfit = "programs are out of force: " + f.OutOfForce.Error()
		about("", "are out of force: "+f.OutOfForce.Error(), "they are attached again as soon as that is possible")
	}
	if f.Devices != nil {
		about("", "cannot be attached, packets of these devices are not balanced: "+f.Devices.Error(), "look at the device, or leave it out with --devices")
	}
	a.proxy.SetUnfit(unfit)
	a.forceLog.Set(problems)
	a.problems.setForce(problems)
}

// restored is what was put back in force.
type restored struct {
	what  string
	until time.Time // when it is told of no more
}
