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
	backends Backends
}

// Backends are backends of Services, some of each network that has any: the kernel reaches the
// others alike.
type Backends struct {
	Here, Elsewhere []netip.Addr // on this node, on others
}

// NewCluster returns a cluster that says nothing.
func NewCluster() *Cluster { return &Cluster{changed: make(chan struct{}, 1)} }

// SetPods says which pods of this node have programs at their devices. The slice is no longer
// the caller's, here and below.
func (c *Cluster) SetPods(list []Pod) { c.set(func() { c.pods = list }) }

// SetNode says by which addresses the cluster knows the node.
func (c *Cluster) SetNode(addrs []netip.Addr) { c.set(func() { c.node = addrs }) }

// SetBackends says which backends there are.
func (c *Cluster) SetBackends(b Backends) { c.set(func() { c.backends = b }) }

func (c *Cluster) set(change func()) {
	c.mu.Lock()
	change()
	c.mu.Unlock()
	select {
	case c.changed <- struct{}{}:
	default:
	}
}

func (c *Cluster) get() (pods []Pod, node []netip.Addr, backends Backends) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pods, c.node, c.backends
}

// backendRoutes finds the devices that lead to backends. The network changes with every pod, and
// the kernel takes a while for each answer: asking takes a fiftieth of the time at most.
type backendRoutes struct {
	again  time.Time          // when it may be asked again
	leads  map[int]netip.Addr // to one on another node, by index of the device
	shared map[int]bool       // devices that lead to backends on this node, by index
}

// find finds them, and says whether it has yet to ask again.
func (r *backendRoutes) find(b Backends) (old bool) {
	began := time.Now()
	if began.Before(r.again) {
		return true
	}
	r.leads, r.shared = map[int]netip.Addr{}, map[int]bool{}
	for _, to := range b.Elsewhere {
		if index, ok := leavesBy(to); ok {
			r.leads[index] = to
		}
	}
	for _, to := range b.Here {
		if index, ok := leavesBy(to); ok {
			r.shared[index] = true
		}
	}
	if len(b.Here)+len(b.Elsewhere) > 0 {
		r.again = began.Add(max(lookAgain, 50*time.Since(began)))
	}
	return false
}

// leavesBy returns the index of the device by which packets to an address leave the node, if they do.
func leavesBy(to netip.Addr) (int, bool) {
	route, err := routeTo(to)
	return route.LinkIndex, err == nil && route.Type == unix.RTN_UNICAST
}
