package lb

import "net/netip"

// HealthCheck is what load balancers ask this node about a Service with the
// external traffic policy Local.
type HealthCheck struct {
	Port           uint16 // spec.healthCheckNodePort, host order
	LocalEndpoints int    // distinct ready addresses on this node, over all ports
}

// TakeHealthChecks returns the health checks that have changed since the last call, but for those of Services that are
// unserved, which wait; port 0 stands for none any more.
func (st *State) TakeHealthChecks(unserved func(ServiceName) bool) map[ServiceName]HealthCheck {
	out, waiting := map[ServiceName]HealthCheck{}, map[ServiceName]bool{}
	for name := range st.recheck {
		if unserved(name) {
			waiting[name] = true
			continue
		}
		var now HealthCheck
		if svc := st.services[name]; svc != nil && svc.HealthCheckNodePort != 0 {
			now = HealthCheck{Port: svc.HealthCheckNodePort, LocalEndpoints: localReady(st.slicesOf(name), st.node)}
		}
		if now == st.healthChecks[name] {
			continue
		}
		out[name], st.healthChecks[name] = now, now
		if now.Port == 0 {
			delete(st.healthChecks, name)
		}
	}
	st.recheck = waiting
	return out
}

// localReady counts the distinct ready addresses on a node.
func localReady(from []*Slice, node Node) int {
	ready := map[netip.Addr]bool{}
	for _, s := range from {
		for _, e := range s.Endpoints {
			if e.Ready && e.isOn(node) {
				ready[e.Addr] = true
			}
		}
	}
	return len(ready)
}
