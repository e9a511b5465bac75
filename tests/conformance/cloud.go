package main

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
)

// finalizer keeps a Service until the cloud has taken its load balancer away.
const finalizer = "service.kubernetes.io/load-balancer-cleanup"

// cloudService is what a cloud looks at.
type cloudService struct {
	Metadata struct {
		Namespace, Name, UID string
		DeletionTimestamp    *time.Time
		Finalizers           []string
	}
	Spec struct {
		Type, LoadBalancerClass, ExternalTrafficPolicy, SessionAffinity string
		HealthCheckNodePort                                             int
	}
	Status struct {
		LoadBalancer struct{ Ingress []struct{ IP string } }
	}
}

func (s *cloudService) path() string {
	return "/api/v1/namespaces/" + s.Metadata.Namespace + "/services/" + s.Metadata.Name
}

func (s *cloudService) wanted() bool {
	return s.Spec.Type == "LoadBalancer" && s.Spec.LoadBalancerClass == "" && s.Metadata.DeletionTimestamp == nil
}

func (s *cloudService) ip() string {
	if len(s.Status.LoadBalancer.Ingress) == 0 {
		return ""
	}
	return s.Status.LoadBalancer.Ingress[0].IP
}

// cloud stands for a cloud's load balancers. It gives each Service that wants
// one an address and routes it to the nodes that should get it. Packets reach
// nodes as clients sent them, so all that happens to them is the proxy's doing.
type cloud struct {
	api    *api
	health http.Client
	routes map[string]string // address → nodes, as it was last set
}

func (l *lab) balance() {
	a, err := l.newAPI()
	if err != nil {
		say("cloud: %v", err)
		return
	}
	c := &cloud{api: a, routes: map[string]string{}}
	c.health = http.Client{Timeout: 500 * time.Millisecond, Transport: &http.Transport{DisableKeepAlives: true}}
	for ; ; time.Sleep(250 * time.Millisecond) {
		if err := c.reconcile(); err != nil {
			say("cloud: %v", err)
		}
	}
}

func (c *cloud) reconcile() error {
	var services struct{ Items []*cloudService }
	if err := c.api.get("/api/v1/services", &services); err != nil {
		return err
	}
	ready, err := c.readyNodes()
	if err != nil {
		return err
	}
	taken, wanted := map[string]bool{}, map[string]string{}
	for _, s := range services.Items {
		taken[s.ip()] = true
	}
	for _, s := range services.Items {
		if !s.wanted() {
			err = c.release(s)
		} else if err = c.provide(s, taken); err == nil {
			wanted[s.ip()] = strings.Join(c.targets(s, ready), " ")
		}
		if err != nil {
			say("cloud: %v", err) // changed or gone meanwhile: the next round sees it
		}
	}
	c.route(wanted)
	return nil
}

// readyNodes are the addresses of nodes that are.
func (c *cloud) readyNodes() ([]string, error) {
	var nodes struct {
		Items []struct {
			Status struct {
				Addresses  []struct{ Type, Address string }
				Conditions []struct{ Type, Status string }
			}
		}
	}
	if err := c.api.get("/api/v1/nodes", &nodes); err != nil {
		return nil, err
	}
	var ready []string
	for _, n := range nodes.Items {
		isReady := slices.ContainsFunc(n.Status.Conditions, func(c struct{ Type, Status string }) bool {
			return c.Type == "Ready" && c.Status == "True"
		})
		for _, a := range n.Status.Addresses {
			if isReady && a.Type == "InternalIP" && !strings.Contains(a.Address, ":") {
				ready = append(ready, a.Address)
			}
		}
	}
	slices.Sort(ready)
	return ready, nil
}

// release takes the load balancer of a Service away.
func (c *cloud) release(s *cloudService) error {
	if !slices.Contains(s.Metadata.Finalizers, finalizer) {
		return nil
	}
	if err := c.api.patch(s.path()+"/status", map[string]any{"status": map[string]any{"loadBalancer": map[string]any{"ingress": nil}}}); err != nil {
		return err
	}
	others := slices.DeleteFunc(s.Metadata.Finalizers, func(f string) bool { return f == finalizer })
	return c.api.patch(s.path(), map[string]any{"metadata": map[string]any{"finalizers": others}})
}

// provide gives a Service a load balancer with an address that is free.
func (c *cloud) provide(s *cloudService, taken map[string]bool) error {
	if !slices.Contains(s.Metadata.Finalizers, finalizer) {
		all := append(s.Metadata.Finalizers, finalizer)
		if err := c.api.patch(s.path(), map[string]any{"metadata": map[string]any{"finalizers": all}}); err != nil {
			return err
		}
	}
	for i := 1; s.ip() == "" && i < 255; i++ {
		ip := fmt.Sprint(balancers, i)
		if taken[ip] {
			continue
		}
		taken[ip] = true
		ingress := []any{map[string]any{"ip": ip, "ipMode": "VIP"}}
		s.Status.LoadBalancer.Ingress = append(s.Status.LoadBalancer.Ingress, struct{ IP string }{ip})
		return c.api.patch(s.path()+"/status", map[string]any{"status": map[string]any{"loadBalancer": map[string]any{"ingress": ingress}}})
	}
	return nil
}

// targets are the nodes that a Service's load balancer sends to.
func (c *cloud) targets(s *cloudService, ready []string) []string {
	var to []string
	for _, node := range ready {
		if s.Spec.ExternalTrafficPolicy != "Local" || c.healthy(node, s.Spec.HealthCheckNodePort) {
			to = append(to, node)
		}
	}
	if s.Spec.SessionAffinity == "ClientIP" && len(to) > 1 {
		return to[:1] // each node remembers clients for itself
	}
	return to
}

func (c *cloud) healthy(node string, port int) bool {
	resp, err := c.health.Get(fmt.Sprintf("http://%s:%d/healthz", node, port))
	if err != nil {
		return false
	}
	_ = resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

// route makes the routes what is wanted of them.
func (c *cloud) route(wanted map[string]string) {
	for ip := range c.routes {
		if _, ok := wanted[ip]; !ok {
			wanted[ip] = ""
		}
	}
	for ip, to := range wanted {
		before := c.routes[ip]
		if ip == "" || to == before {
			continue
		}
		argv := []string{"ip", "route", "replace", ip + "/32", "src", clientIP}
		for _, node := range strings.Fields(to) {
			argv = append(argv, "nexthop", "via", node)
		}
		if to == "" {
			argv = []string{"ip", "route", "del", ip + "/32"}
		}
		if err := execute(argv...); err != nil {
			say("cloud: %v", err)
			continue
		}
		if c.routes[ip] = to; to == "" {
			delete(c.routes, ip)
		}
	}
}
