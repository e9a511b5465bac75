package cli

import (
	"fmt"
	"time"

	"github.com/headgate/headgate/pkg/datapath"
	"github.com/headgate/headgate/pkg/lb"
)

// described is what the EndpointSlices of a Service say of a backend.
type described struct {
	said  *lb.Description // nil where no agent knows it
	Pod   string          `json:"pod,omitempty"`
	Node  string          `json:"node,omitempty"`
	Zone  string          `json:"zone,omitempty"`
	State string          `json:"state"`
}

// describedFor is what is said to one of several Service ports.
type describedFor struct {
	Service string `json:"service"`
	described
}

// pod appends the full and the short name of the Pod.
func (d *described) pod(names []string) []string {
	if d.Pod != "" {
		names = append(names, d.Pod, d.said.Pod.Name)
	}
	return names
}

// each returns a cell of what is said of the backend: a line for each Service port where these differ.
func (b backend) each(of func(described) any) any {
	if b.ByService == nil {
		return of(b.described)
	}
	var all []string
	for i := range b.ByService {
		all = append(all, lines(of(b.ByService[i].described))[0])
	}
	return all
}

// unknown stands for what only an agent knows, where none says it. That a backend is ejected the kernel says.
const (
	unknown = "unknown"
	ejected = "ejected"
)

// describeFor takes what is said of the backend to its Services.
func (b *backend) describeFor(said *lb.Told) {
	var all []*lb.Description
	var best *lb.Description
	differ := false
	for i, service := range b.Services {
		d := said.Of(b.at, service.ServiceName)
		all = append(all, d)
		if i == 0 || stateRank(stateOf(d, b.Load)) < stateRank(stateOf(best, b.Load)) {
			best = d
		}
		differ = differ || !alike(d, all[0])
	}
	b.described = describe(best, b.Load)
	for i := 0; differ && i < len(all); i++ {
		b.ByService = append(b.ByService, describedFor{b.Services[i].String(), describe(all[i], b.Load)})
	}
}

// alike says whether the same is said to two Services.
func alike(a, b *lb.Description) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Pod == b.Pod && a.Node == b.Node && a.Zone == b.Zone && a.State == b.State
}

// describe returns what is said of a backend, nil for nothing. That it is ejected the kernel knows.
func describe(d *lb.Description, l datapath.Load) described {
	out := described{said: d, State: stateOf(d, l)}
	if d != nil {
		out.Node, out.Zone, out.Pod = d.Node, d.Zone, podName(d)
	}
	return out
}

// stateOf returns the state of a backend.
func stateOf(d *lb.Description, l datapath.Load) string {
	switch {
	case l.Ejected > 0:
		return ejected
	case d == nil:
		return unknown
	default:
		return string(d.State)
	}
}

// podName returns the name of the Pod that a backend is, "" where that is not known.
func podName(d *lb.Description) string {
	if d == nil || d.Pod == (lb.PodName{}) {
		return ""
	}
	return d.Pod.String()
}

// where returns what is said of where the backend is.
func (d *described) where(name string) any {
	switch {
	case d.said == nil:
		return unknown
	case name == "":
		return nil
	default:
		return name
	}
}

// health is what is known of a backend of a Service in few words: that it fails, else that it is not ready or not used.
func (d *described) health(l datapath.Load) string {
	switch h := health(l); {
	case h != healthy:
		return h
	case d.State != string(lb.StateReady) && d.State != unknown:
		return d.State
	case l.Connections == 0:
		return "unused"
	case d.State == unknown:
		return "no failures"
	default:
		return healthy
	}
}

// healthy is the health of a backend that has not failed.
const healthy = "ok"

// health says whether a backend takes connections, as far as this node knows.
func health(l datapath.Load) string {
	switch {
	case l.Ejected > 0:
		return "ejected for " + l.Ejected.Round(time.Second).String()
	case l.EjectedByOne > 0:
		return "avoided for " + l.EjectedByOne.Round(time.Second).String() + " by the client that failed last"
	case l.Failures > 0:
		return fmt.Sprintf("%d failed", l.Failures)
	default:
		return healthy
	}
}
