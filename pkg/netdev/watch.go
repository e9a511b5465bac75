package netdev

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
)

// settle is how long changes gather before they are told: interfaces come up
// with several addresses at once.
const settle = 5 * time.Millisecond

// WatchAddresses calls tell with the addresses of the node, at once and after
// every change, until the context ends. The map is the caller's own.
func WatchAddresses(ctx context.Context, notify func(map[netip.Addr]bool)) error {
	read := func() (map[netip.Addr]bool, bool, error) { a, err := Addresses(); return a, false, err }
	return watch(ctx, nil, read, maps.Equal[map[netip.Addr]bool, map[netip.Addr]bool], func(a map[netip.Addr]bool) { notify(maps.Clone(a)) })
}

// Seen is what WatchDevices sees.
type Seen struct {
	Devices  []Device   // see Devices, then those of the pods
	Unchosen []Unchosen // devices that the patterns should name, and do not
}

// Unchosen is a device that leads to a backend on another node, and that no pattern chooses.
type Unchosen struct {
	Device  string
	Backend netip.Addr
}

// WatchDevices calls notify with the devices that the patterns choose, see Devices, and those of
// the pods; at once and after every change, until the context ends. A chosen device stays
// chosen while it is there, and without any, those with an index of before do. Each calls do on a
// thread in each network namespace of the node, with its cookie. Miss hears of pods whose device or
// namespace was not found; they are looked for again and again.
func WatchDevices(ctx context.Context, patterns Patterns, before []int, cluster *Cluster, each func(do func(file string, cookie uint64) error) error, notify func(Seen), miss func(pod string, why error)) error {
	finder := &podFinder{ports: map[netip.Addr]int{}, each: each}
	missed := map[string]int{} // how many times in a row
	routes, c := &backendRoutes{}, choice{patterns: patterns}
	read := func() (Seen, bool, error) {
		pods, node, backends := cluster.get()
		old := routes.find(backends)
		c.node, c.leads, c.shared = node, map[int]bool{}, routes.shared
		for index := range routes.leads {
			c.leads[index] = true
		}
		n, err := readNetwork()
		if err != nil {
			return Seen{}, false, err
		}
		seen := Seen{Devices: c.choose(n, before)}
		before = nil
		if len(patterns.Devices) > 0 {
			seen.Unchosen = n.unchosen(routes.leads, c.kept)
		}
		ofPods, missing := finder.devices(pods, seen.Devices)
		for pod, why := range missing {
			if missed[pod]++; missed[pod] == tellMissed {
				miss(pod, why)
			}
		}
		maps.DeleteFunc(missed, func(pod string, _ int) bool { return missing[pod] == nil })
		seen.Devices = append(seen.Devices, ofPods...)
		return seen, old || len(missing) > 0, nil
	}
	equal := func(a, b Seen) bool {
		return slices.Equal(a.Devices, b.Devices) && slices.Equal(a.Unchosen, b.Unchosen)
	}
	return watch(ctx, cluster.changed, read, equal, func(s Seen) { notify(Seen{slices.Clone(s.Devices), slices.Clone(s.Unchosen)}) })
}

// choose returns the devices that are chosen, which are kept from now on; if there are none, those
// with an index of before.
func (c *choice) choose(n *network, before []int) []Device {
	list := c.devices(n)
	if len(list) == 1 { // the node itself
		c.kept = map[int]bool{}
		for _, index := range before {
			c.kept[index] = true
		}
		list = c.devices(n)
	}
	c.kept = map[int]bool{}
	for _, d := range list[1:] {
		c.kept[d.Index] = true
	}
	return list
}

// unchosen returns devices that lead to backends and whose packets no program sees, sorted by name.
func (n *network) unchosen(leads map[int]netip.Addr, chosen map[int]bool) (out []Unchosen) {
	for _, l := range n.links {
		a := l.Attrs()
		backend, is := leads[a.Index]
		if !is || !mayLeadElsewhere(l) || n.isSeen(l, chosen) {
			continue
		}
		out = append(out, Unchosen{a.Name, backend})
	}
	slices.SortFunc(out, func(a, b Unchosen) int { return strings.Compare(a.Device, b.Device) })
	return out
}

// tellMissed is how many readings in a row miss a pod that is worth a word: those
// who have just been asked where they are need a moment.
const tellMissed = 3

// lookAgain is when something is read again that was not all there.
const lookAgain = time.Second

// watch calls tell with what read returns, at once and whenever that is no
// longer equal to what was told. It reads after every change of the network, when
// more says so, and after a while where read says that something is missing.
func watch[T any](ctx context.Context, more <-chan struct{}, read func() (T, bool, error), equal func(a, b T) bool, notify func(T)) error {
	notified, last := false, *new(T)
	for ctx.Err() == nil {
		changes, stop, err := subscribe()
		if err != nil {
			return err
		}
		for open := true; open; {
			now, missing, err := read()
			if err != nil {
				stop()
				return err
			}
			if !notified || !equal(last, now) {
				notified, last = true, now
				notify(now)
			}
			open = wait(ctx, changes, more, missing)
		}
		stop()
	}
	return nil
}

// wait returns when something has changed and nothing more does, or false if
// there is nothing more to hear.
func wait(ctx context.Context, changes, more <-chan struct{}, missing bool) bool {
	var again <-chan time.Time
	if missing {
		again = time.After(lookAgain)
	}
	select {
	case <-ctx.Done():
		return false
	case _, open := <-changes:
		if !open {
			return false
		}
	case <-more:
	case <-again:
	}
	select {
	case <-ctx.Done():
	case <-time.After(settle):
	}
	return ctx.Err() == nil
}

// subscribe returns a channel that gets a value after devices, addresses or
// routes have changed. It closes when the kernel had more to say than fits:
// then everything must be read anew.
func subscribe() (changes <-chan struct{}, stop func(), err error) {
	done := make(chan struct{})
	addresses := make(chan netlink.AddrUpdate, 64)
	links := make(chan netlink.LinkUpdate, 64)
	routes := make(chan netlink.RouteUpdate, 64)
	quiet := func(error) {} // the channel closes, which says enough
	const buffer = 1 << 20
	if err := netlink.AddrSubscribeWithOptions(addresses, done, netlink.AddrSubscribeOptions{ErrorCallback: quiet, ReceiveBufferSize: buffer}); err != nil {
		close(done)
		return nil, nil, fmt.Errorf("subscribe to addresses: %w", err)
	}
	if err := netlink.LinkSubscribeWithOptions(links, done, netlink.LinkSubscribeOptions{ErrorCallback: quiet}); err != nil {
		close(done)
		return nil, nil, fmt.Errorf("subscribe to devices: %w", err)
	}
	if err := netlink.RouteSubscribeWithOptions(routes, done, netlink.RouteSubscribeOptions{ErrorCallback: quiet}); err != nil {
		close(done)
		return nil, nil, fmt.Errorf("subscribe to routes: %w", err)
	}
	out := make(chan struct{}, 1)
	go merge(out, addresses, links, routes)
	return out, func() { close(done) }, nil
}

// merge turns whatever comes into one value that waits to be read, until one
// of the channels closes; then it reads the others to their ends, so that
// nobody is left writing to them.
func merge(out chan<- struct{}, addresses <-chan netlink.AddrUpdate, links <-chan netlink.LinkUpdate, routes <-chan netlink.RouteUpdate) {
	for open := true; open; {
		select {
		case _, open = <-addresses:
		case _, open = <-links:
		case _, open = <-routes:
		}
		select {
		case out <- struct{}{}:
		default:
		}
	}
	close(out)
	go drain(addresses)
	go drain(links)
	drain(routes)
}

func drain[T any](c <-chan T) {
	for range c {
	}
}
