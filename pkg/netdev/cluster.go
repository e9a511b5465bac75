package netdev

import (
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Cluster is what the cluster says of the addresses that devices lead to. It may change at
// any time, from any goroutine.
type Cluster struct {
	changed chan struct{} // has an element while there is news

	mu       sync.Mutex
	pods     []Pod
	node     []netip.Addr
	backends []netip.Addr
}

// NewCluster returns a cluster that says nothing.
func NewCluster() *Cluster { return &Cluster{changed: make(chan struct{}, 1)} }

// SetPods says which pods of this node have programs at their devices. The slice is no longer
// the caller's, here and below.
func (c *Cluster) SetPods(list []Pod) { c.set(func() { c.pods = list }) }

// SetNode says by which addresses the cluster knows the node.
func (c *Cluster) SetNode(addrs []netip.Addr) { c.set(func() { c.node = addrs }) }

// SetBackends gives backends on other nodes, one of each network that has any.
func (c *Cluster) SetBackends(addrs []netip.Addr) { c.set(func() { c.backends = addrs }) }

func (c *Cluster) set(change func()) {
	c.mu.Lock()
	change()
	c.mu.Unlock()
	select {
	case c.changed <- struct{}{}:
	default:
	}
}

func (c *Cluster) get() (pods []Pod, node, backends []netip.Addr) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pods, c.node, c.backends
}

// backendRoutes finds the devices that lead to backends. The kernel takes some 5 µs for each
// answer, and the network changes with every pod: so it is asked once a lookAgain at most.
type backendRoutes struct {
	asked time.Time
	leads map[int]netip.Addr // to one of them, by index of the device
}

// find returns the devices that lead to backends, and whether the answer is an old one.
func (r *backendRoutes) find(backends []netip.Addr) (map[int]netip.Addr, bool) {
	if time.Since(r.asked) < lookAgain {
		return r.leads, true
	}
	r.leads = map[int]netip.Addr{}
	for _, b := range backends {
		route, err := routeTo(b)
		if _, known := r.leads[route.LinkIndex]; err == nil && !known && route.Type == unix.RTN_UNICAST {
			r.leads[route.LinkIndex] = b
		}
	}
	if len(backends) > 0 {
		r.asked = time.Now()
	}
	return r.leads, false
}
