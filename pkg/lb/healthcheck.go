package lb

import "net/netip"

// HealthCheck is what load balancers ask this node about a Service with the
// external traffic policy Local.
type HealthCheck struct {
	Port           uint16 // spec.healthCheckNodePort, host order, never 0
	LocalEndpoints int    // distinct ready addresses on this node, over all ports
}

// HealthChecks returns the Services that have a health-check NodePort.
func (st *State) HealthChecks() map[ServiceName]HealthCheck {
	out := map[ServiceName]HealthCheck{}
	for name := range st.healthChecked {
		ready, counted := st.ready[name]
		if !counted {
			ready = localReady(st.slicesOf(name), st.node)
			st.ready[name] = ready
		}
		out[name] = HealthCheck{Port: st.services[name].HealthCheckNodePort, LocalEndpoints: ready}
	}
	return out
}

// localReady counts the distinct ready addresses on a node.
func localReady(from []*Slice, node Node) int {
	ready := map[netip.Addr]bool{}
	for _, s := range from {
		for _, e := range s.Endpoints {
			if e.Ready && e.Node != "" && e.Node == node.Name {
				ready[e.Addr] = true
			}
		}
	}
	return len(ready)
}
