package agent

import (
	"maps"
	"slices"
	"strconv"
	"sync"

	"go.uber.org/zap"

	"github.com/headgate/headgate/pkg/lb"
)

// reporter tells the owners of Services what is wrong with them.
type reporter interface {
	// Report says everything that is wrong now. It does not wait.
	Report([]lb.Problem)
}

// problems puts together what is wrong, from all who find out, and passes it on:
// to metrics, to the owners of Services, to a file for headgate status.
type problems struct {
	log   *zap.Logger
	dir   string // of the file, "" for none
	count func([]lb.Problem)
	tell  reporter // nil where there is nobody to tell

	mu       sync.Mutex
	input    []lb.Problem                  // of the reconciler
	suspects []lb.Problem                  // backends that do not take connections
	unserved map[lb.ServiceName]lb.Problem // health checks without a port
	report   Report
	written  bool
	cannot   bool // write the file; it was said
}

// setInput says everything that the reconciler knows to be wrong.
func (p *problems) setInput(input []lb.Problem) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.input = input
	p.pass()
}

// setUnserved says why the health check of a Service cannot be served, nil once
// it is.
func (p *problems) setUnserved(name lb.ServiceName, port uint16, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.unserved, name)
	if err != nil {
		p.unserved[name] = lb.Problem{
			Object: "Service " + name.String(), Field: "spec.healthCheckNodePort", Value: portText(port),
			Reason: "cannot be served: " + err.Error(),
			Remedy: "free the port on the node, or give the Service another",
		}
	}
	p.pass()
}

// setSuspects says which backends do not take connections.
func (p *problems) setSuspects(suspects []lb.Problem) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.suspects = suspects
	p.pass()
}

// setSockets says how the sockets of lost backends are told of it.
func (p *problems) setSockets(how string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.report.Sockets = how
	p.written = false
	p.pass()
}

// pass passes on what is wrong now.
func (p *problems) pass() {
	all := slices.Clone(p.input)
	for _, name := range slices.SortedFunc(maps.Keys(p.unserved), lb.ServiceName.Compare) {
		all = append(all, p.unserved[name])
	}
	all = append(all, p.suspects...)
	p.count(all)
	if p.tell != nil {
		p.tell.Report(all)
	}
	lines := []string{}
	for _, one := range all {
		lines = append(lines, one.Error())
	}
	if p.dir == "" || p.written && slices.Equal(lines, p.report.Problems) {
		return
	}
	p.report.Problems = lines
	err := p.report.write(p.dir)
	p.written = err == nil
	if err != nil && !p.cannot {
		p.log.Warn("write the report for headgate status", zap.Error(err))
	}
	p.cannot = err != nil
}

func portText(port uint16) string {
	if port == 0 {
		return ""
	}
	return strconv.Itoa(int(port))
}
