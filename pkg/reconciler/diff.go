package reconciler

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/plan"
)

// Difference is a write that would make the maps what sources say.
type Difference struct {
	Service string `json:"service,omitempty"` // "" for what belongs to the node
	Write   string `json:"write"`
}

// errNotReady says that there is nothing whole to speak of yet.
var errNotReady = errors.New("the agent has not brought everything into the kernel yet: see headgate status")

// Diff returns what an agent that starts now would write: nothing where the maps hold what
// sources say. It reads them all, and changes wait for it.
func (i *Inbox) Diff(ctx context.Context) (all []Difference, err error) {
	asked := i.ask(ctx, lb.Drained{}, func(r *Reconciler) bool {
		all, err = r.differences()
		return false
	})
	return all, errors.Join(asked, err)
}

func (r *Reconciler) differences() ([]Difference, error) {
	if !r.isReady() {
		return nil, errNotReady
	}
	all := []Difference{}
	content, err := r.dp.Content()
	if err == nil {
		err = r.planner.Again(content, r.comparable(content), r.state.Frontends, func(name lb.ServiceName, ops []plan.Op) {
			for _, op := range ops {
				d := Difference{Write: op.String()}
				if name != (lb.ServiceName{}) {
					d.Service = name.String()
				}
				all = append(all, d)
			}
		})
	}
	if err != nil { // they contradict themselves, which an agent that starts would mend so
		all = append(all, Difference{Write: "replace all maps: " + err.Error()})
	}
	return all, nil
}

// comparable returns the Services that are to be in force, or are. What is frozen stays as it is.
func (r *Reconciler) comparable(c plan.Content) []lb.ServiceName {
	names := map[lb.ServiceName]bool{}
	for _, name := range r.state.Services() {
		names[name] = true
	}
	for _, service := range c.Services {
		names[service.ServiceName] = true
	}
	maps.DeleteFunc(names, func(name lb.ServiceName, _ bool) bool { return r.frozen(name) })
	return slices.SortedFunc(maps.Keys(names), lb.ServiceName.Compare)
}
