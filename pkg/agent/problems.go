package agent

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/reconciler"
)

// reporter tells the owners of Services what is wrong with them.
type reporter interface {
	// Report says everything that is wrong now. It does not wait.
	Report([]lb.Problem)
}

// problems puts together what is wrong, from all who find out, and passes it on:
// to metrics, to the owners of Services, to a file for headgate status.
type problems struct {
	log     *zap.Logger
	dir     string // of the file, "" for none
	count   func([]lb.Problem)
	reports reporter // nil where there is none

	mu       sync.Mutex
	backends *reconciler.ProblemLog        // of ejected, probes, peers, files, the key, devices and faults; others log the other parts
	input    []lb.Problem                  // of the reconciler
	ejected  []lb.Problem                  // backends that do not take connections
	probes   []lb.Problem                  // that may not be made, or not as often
	unserved map[lb.ServiceName]lb.Problem // health checks without a port
	contact  []lb.Problem                  // with the API server
	force    []lb.Problem                  // of programs
	peers    []lb.Problem                  // with homes of what is carried
	drained  []lb.Problem                  // with the file that says what is
	writes   []lb.Problem                  // with what is written into the kernel
	files    []lb.Problem                  // with file descriptors
	key      []lb.Problem                  // with the key of hashes
	devices  []lb.Problem                  // with the choice of devices
	faults   []lb.Problem                  // for which the node refuses clients
	report   Report
	written  bool // as it is, if there is a directory
	cannot   bool // write the file; it was said
}

// setInput says everything that the reconciler knows to be wrong.
func (p *problems) setInput(input []lb.Problem) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.set(&p.input, input)
}

// setUnserved says why the health check of a Service cannot be served, nil once
// it is.
func (p *problems) setUnserved(name lb.ServiceName, port uint16, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.unserved, name)
	if err != nil {
		p.unserved[name] = lb.Problem{
			Scope: lb.ScopeNode, Object: "Service " + name.String(), Field: "spec.healthCheckNodePort", Value: portText(port),
			Reason: "cannot be served: " + err.Error(),
			Remedy: "free the port on the node, or give the Service another",
		}
	}
	p.pass()
}

// setEjected says which backends do not take connections.
func (p *problems) setEjected(ejected []lb.Problem) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.set(&p.ejected, lb.Bounded("the node", ejected))
}

// setContact says how the agent gets on with the API server.
func (p *problems) setContact(c Contact, problems []lb.Problem) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.report.Contact == nil || *p.report.Contact != c {
		p.report.Contact = &c
		p.written = false
	}
	p.set(&p.contact, problems)
}

// setForce says what is wrong with the programs.
func (p *problems) setForce(problems []lb.Problem) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.set(&p.force, problems)
}

// setProbes says what is wrong with the probes that Services ask for.
func (p *problems) setProbes(probes []lb.Problem) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.set(&p.probes, lb.Bounded("the node", probes))
}

// setPeers says what is known of the homes of what is carried, and what is wrong with them.
func (p *problems) setPeers(peers []Peer, problems []lb.Problem) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !slices.Equal(p.report.Peers, peers) {
		p.report.Peers, p.written = peers, false
	}
	p.set(&p.peers, lb.Bounded("the node", problems))
}

// setSockets says how the sockets of lost backends are told of it.
func (p *problems) setSockets(how string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.report.Sockets = how
	p.written = false
	p.pass()
}

// setXDP says the drivers of which devices repeat nothing, and why.
func (p *problems) setXDP(why map[string]string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.report.XDP = why
	p.written = false
	p.pass()
}

// setDrained says what is wrong with what an earlier agent left of it.
func (p *problems) setDrained(problems []lb.Problem) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.set(&p.drained, problems)
}

// setWrites says what keeps changes from being written into the kernel.
func (p *problems) setWrites(problems []lb.Problem) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.set(&p.writes, problems)
}

// setFiles says that few file descriptors are free.
func (p *problems) setFiles(problems []lb.Problem) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.set(&p.files, problems)
}

// setKey says that the key of hashes is not kept.
func (p *problems) setKey(problems []lb.Problem) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.set(&p.key, problems)
}

// setFaults says for which faults of the node clients are refused.
func (p *problems) setFaults(problems []lb.Problem) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.set(&p.faults, lb.Bounded("the node", problems))
}

// setDevices says what is wrong with the choice of devices.
func (p *problems) setDevices(problems []lb.Problem) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.set(&p.devices, lb.Bounded("the node", problems))
}

// set replaces a part of what is wrong. Most say the same again, every second.
func (p *problems) set(part *[]lb.Problem, now []lb.Problem) {
	if p.written && slices.Equal(*part, now) {
		return
	}
	*part = now
	p.pass()
}

// pass passes on what is wrong now.
func (p *problems) pass() {
	var unchecked []lb.Problem
	for _, name := range slices.SortedFunc(maps.Keys(p.unserved), lb.ServiceName.Compare) {
		unchecked = append(unchecked, p.unserved[name])
	}
	p.backends.Set(slices.Concat(p.ejected, p.probes, p.peers, p.files, p.key, p.devices, p.faults))
	all := slices.Concat(p.input, lb.Bounded("the node", unchecked), p.ejected, p.probes, p.peers, p.contact, p.force, p.drained, p.writes, p.files, p.key, p.devices, p.faults)
	p.count(all)
	if p.reports != nil {
		p.reports.Report(all)
	}
	standing, unserved := standing(all, p.report.Problems, time.Now()), []string(nil)
	for _, one := range all {
		name, is := strings.CutPrefix(one.Object, "Service ")
		if is && one.Unserved && one.Scope == lb.ScopeNode && !slices.Contains(unserved, name) {
			unserved = append(unserved, name)
		}
	}
	if p.written && slices.Equal(standing, p.report.Problems) && slices.Equal(unserved, p.report.Unserved) {
		return
	}
	p.report.Problems, p.report.Unserved = standing, unserved
	p.write()
}

// write writes the report, if there is a directory for it, and says once if it cannot.
func (p *problems) write() {
	var err error
	if p.dir != "" {
		err = p.report.write(p.dir)
	}
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
