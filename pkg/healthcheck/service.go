// Package healthcheck answers what load balancers and the kubelet ask a service
// proxy: whether this node has endpoints of a Service (health-check NodePorts),
// and whether the proxy keeps up (/healthz and /livez).
//
// The answers are those of kube-proxy (k8s.io/kubernetes/pkg/proxy/healthcheck).
package healthcheck

import (
	"context"
	"errors"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/headgate/headgate/pkg/httpserve"
	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/tick"
)

// ServiceConfig is what a ServiceServer needs.
type ServiceConfig struct {
	// Addresses to listen on. Nil is every address of both families; an
	// empty list that is not nil is none.
	Addresses []netip.Addr
	// Healthy says whether the proxy itself keeps up.
	Healthy func() bool
	// Report is told that a Service has no listener, once for as long as the
	// reason stays the same, and with no error when it has one or needs none any
	// more. May be nil.
	Report func(lb.ServiceName, uint16, error)
	// Listen opens a port; nil is net.Listen.
	Listen func(network, address string) (net.Listener, error)
}

// ServiceServer serves the health-check NodePorts of Services: a load balancer
// sends clients only to nodes that answer 200.
type ServiceServer struct {
	healthy func() bool
	report  func(lb.ServiceName, uint16, error)
	listen  func(network, address string) (net.Listener, error)
	limit   *httpserve.Limit // of all ports together: they share the descriptors of the process
	missing chan struct{}    // has an element where a port may be missing

	mu        sync.RWMutex
	addresses []netip.Addr // the zero Addr stands for all
	services  map[lb.ServiceName]*service
}

// service is a Service with what is open for it.
type service struct {
	lb.HealthCheck
	ports    map[netip.Addr]*port
	reported string // the failure that was told last, "" if all is open
}

// finding is what Report is told after the lock is released: it may call back.
type finding struct {
	service lb.ServiceName
	port    uint16
	err     error // nil where all is well again
}

// NewServiceServer returns a server that serves nothing yet.
func NewServiceServer(cfg ServiceConfig) *ServiceServer {
	s := &ServiceServer{
		healthy: cfg.Healthy, report: cfg.Report, listen: cfg.Listen,
		limit: &httpserve.Limit{Lasts: httpserve.Brief}, missing: make(chan struct{}, 1), addresses: orAll(cfg.Addresses), services: map[lb.ServiceName]*service{},
	}
	if s.report == nil {
		s.report = func(lb.ServiceName, uint16, error) {}
	}
	if s.listen == nil {
		s.listen = net.Listen
	}
	return s
}

func orAll(addresses []netip.Addr) []netip.Addr {
	if addresses == nil {
		return []netip.Addr{{}}
	}
	return slices.Clone(addresses)
}

// Change says what is answered for these Services from now on; with port 0 nothing. A port
// that changes is closed and opened anew.
func (s *ServiceServer) Change(services map[lb.ServiceName]lb.HealthCheck) {
	s.mu.Lock()
	found := s.set(services)
	found = append(found, s.openAll(slices.Collect(maps.Keys(services)))...)
	s.mu.Unlock()
	s.tell(found)
}

// set replaces what is answered, and returns what is well by that. All that goes is closed
// before anything is opened: a port may move from one Service to another in one change.
func (s *ServiceServer) set(services map[lb.ServiceName]lb.HealthCheck) (well []finding) {
	for name, want := range services {
		old := s.services[name]
		if old != nil && want.Port != old.Port {
			old.close()
			delete(s.services, name)
			if old.reported != "" {
				well = append(well, finding{name, old.Port, nil})
			}
			old = nil
		}
		if old == nil && want.Port != 0 {
			old = &service{ports: map[netip.Addr]*port{}}
			s.services[name] = old
		}
		if old != nil {
			old.HealthCheck = want
		}
	}
	return well
}

// Close ends all answers.
func (s *ServiceServer) Close() {
	none := map[lb.ServiceName]lb.HealthCheck{}
	s.mu.Lock()
	for name := range s.services {
		none[name] = lb.HealthCheck{}
	}
	found := s.set(none)
	s.mu.Unlock()
	s.tell(found)
}

// SetAddresses changes the addresses that are listened on, see ServiceConfig.
func (s *ServiceServer) SetAddresses(addresses []netip.Addr) {
	s.mu.Lock()
	s.addresses = orAll(addresses)
	for _, svc := range s.services {
		svc.closeOthers(s.addresses)
	}
	s.mu.Unlock()
	s.openOf(func(*service) bool { return true })
}

// Retry opens what could not be opened before.
func (s *ServiceServer) Retry() {
	s.openOf(func(svc *service) bool { return svc.reported != "" })
}

// openOf opens what some Services miss, and tells of it.
func (s *ServiceServer) openOf(some func(*service) bool) {
	var names []lb.ServiceName
	s.mu.Lock()
	for name, svc := range s.services {
		if some(svc) {
			names = append(names, name)
		}
	}
	found := s.openAll(names)
	s.mu.Unlock()
	s.tell(found)
}

// Run retries what could not be opened, for as long as there is something, until the context
// ends. Then it closes everything.
func (s *ServiceServer) Run(ctx context.Context) {
	retry := time.NewTimer(time.Hour)
	retry.Stop()
	defer retry.Stop()
	for {
		select {
		case <-ctx.Done():
			s.Close()
			return
		case <-s.missing:
		case <-retry.C:
			s.Retry()
		}
		if s.isMissing() {
			retry.Reset(tick.Next(httpserve.RetryAfter))
		}
	}
}

// isMissing says whether a port could not be opened.
func (s *ServiceServer) isMissing() bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, svc := range s.services {
		if svc.reported != "" {
			return true
		}
	}
	return false
}

// openAll opens what Services miss, and returns what is news.
func (s *ServiceServer) openAll(names []lb.ServiceName) (found []finding) {
	slices.SortFunc(names, lb.ServiceName.Compare)
	for _, name := range names {
		if s.services[name] == nil {
			continue
		}
		if news, err := s.open(name); news {
			found = append(found, finding{name, s.services[name].Port, err})
		}
	}
	return found
}

// tell reports without the lock: who is told may call back.
func (s *ServiceServer) tell(found []finding) {
	for _, f := range found {
		if s.report(f.service, f.port, f.err); f.err == nil {
			continue
		}
		select {
		case s.missing <- struct{}{}:
		default: // Run hears of it already
		}
	}
}

// open opens what a Service misses. What can be opened is, whatever fails
// beside it. It says whether that is news.
func (s *ServiceServer) open(name lb.ServiceName) (news bool, err error) {
	svc := s.services[name]
	var errs []error
	for _, addr := range s.addresses {
		if svc.ports[addr] != nil {
			continue
		}
		l, err := s.listen("tcp", address(addr, svc.Port))
		if err != nil {
			errs = append(errs, err)
			continue
		}
		svc.ports[addr] = servePort(l, answer{s, name}, s.limit)
	}
	told := svc.reported
	svc.reported = ""
	if err = errors.Join(errs...); err != nil {
		svc.reported = err.Error()
	}
	return svc.reported != told, err
}
