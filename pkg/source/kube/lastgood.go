package kube

import (
	"encoding/json"
	"net"
	"net/url"
	"os"
	"slices"
	"strconv"
	"sync"

	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/statefile"
)

// mostLastGood is how many servers are kept.
const mostLastGood = 16

// apiService is the Service by which pods reach the API servers.
var apiService = lb.ServiceName{Namespace: "default", Name: "kubernetes"}

// lastGood are API servers that are asked when those that we were told of cannot
// be reached: the one that answered last, and the endpoints of the cluster's own
// Service of them. They outlive the process in a file, for a node that starts
// while its load balancer, or name server, is gone.
//
// The address of that Service is never one of them: it leads somewhere as long
// as we balance it, and no further.
type lastGood struct {
	file   string // "" keeps them as long as the process lives
	scheme string // of endpoints
	report func(error)

	mu        sync.Mutex
	read      []string // as the file said at the start
	answered  string
	slices    map[lb.SliceName][]string // endpoints
	virtual   map[string]bool           // hosts that are the Service's own
	written   []string
	cannotSay bool
}

// newLastGood reads what an earlier process has kept. What makes no sense in the
// file is left out: it is a help and no more.
func newLastGood(file, scheme string, report func(error)) *lastGood {
	l := &lastGood{file: file, scheme: scheme, report: report, slices: map[lb.SliceName][]string{}, virtual: map[string]bool{}}
	if file == "" {
		return l
	}
	body, err := os.ReadFile(file)
	if err != nil {
		return l
	}
	var kept []string
	if json.Unmarshal(body, &kept) != nil {
		return l
	}
	for _, one := range kept[:min(len(kept), mostLastGood)] {
		if _, err := parseServers([]string{one}); err == nil {
			l.read = append(l.read, one)
		}
	}
	return l
}

// servers returns them, those that are likeliest to answer first.
func (l *lastGood) servers() []*url.URL {
	l.mu.Lock()
	defer l.mu.Unlock()
	all, err := parseServers(l.all())
	if err != nil {
		return nil // they were all parsed before
	}
	return all
}

// isVirtual says whether a host is an address of the cluster's own Service. Until
// the Service is known, that is what pods are told, unless an earlier agent knew
// it as a server: whoever runs us may name a server in place of the Service.
func (l *lastGood) isVirtual(host string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.virtual[host] || len(l.read) == 0 || host != os.Getenv("KUBERNETES_SERVICE_HOST") {
		return l.virtual[host]
	}
	return !slices.ContainsFunc(l.read, func(v string) bool {
		u, err := url.Parse(v)
		return err == nil && u.Hostname() == host
	})
}

// all returns the URLs of the servers, each once. What the file said counts as
// long as the cluster has not named its servers.
func (l *lastGood) all() (out []string) {
	add := func(values ...string) {
		for _, v := range values {
			u, err := url.Parse(v)
			if err == nil && v != "" && !l.virtual[u.Hostname()] && !slices.Contains(out, v) && len(out) < mostLastGood {
				out = append(out, v)
			}
		}
	}
	add(l.answered)
	var named []string
	for _, endpoints := range l.slices {
		named = append(named, endpoints...)
	}
	slices.Sort(named)
	add(named...)
	if len(named) == 0 {
		add(l.read...)
	}
	return out
}

// answer notes that a server has answered.
func (l *lastGood) answer(scheme, host string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	server := url.URL{Scheme: scheme, Host: host}
	if text := server.String(); text != l.answered && !l.virtual[server.Hostname()] {
		l.answered = text
		l.keep()
	}
}

// take notes what an update says of the servers.
func (l *lastGood) take(u lb.Update) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if svc := u.Services[apiService]; svc != nil {
		for _, a := range svc.ClusterIPs {
			l.virtual[a.String()] = true
		}
	}
	for name, s := range u.Slices {
		if name.Namespace != apiService.Namespace {
			continue
		}
		delete(l.slices, name)
		if s != nil && s.Service == apiService.Name {
			l.slices[name] = l.urls(s)
		}
	}
	l.keep()
}

// urls returns the URLs of the endpoints of a slice that are ready.
func (l *lastGood) urls(s *lb.Slice) (out []string) {
	for _, p := range s.Ports {
		for _, e := range s.Endpoints {
			if p.Protocol == lb.TCP && e.Ready {
				out = append(out, l.scheme+"://"+net.JoinHostPort(e.Addr.String(), strconv.Itoa(int(p.Port))))
			}
		}
	}
	return out
}

// keep writes the file where it would say something else. An agent that has
// heard of no server leaves alone what there is.
func (l *lastGood) keep() {
	all := l.all()
	if l.file == "" || len(all) == 0 || slices.Equal(all, l.written) {
		return
	}
	body, err := json.Marshal(all)
	if err == nil {
		err = statefile.Replace(l.file, append(body, '\n'))
	}
	if err == nil {
		l.written = all
	} else if !l.cannotSay {
		l.report(err)
	}
	l.cannotSay = err != nil
}
