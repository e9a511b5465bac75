package netdev_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/headgate/headgate/pkg/datapath"
	"github.com/headgate/headgate/pkg/netdev"
	"github.com/headgate/headgate/pkg/traffic"
	"github.com/headgate/headgate/tests/testenv"
)

// podAddrs are the addresses of the pod of a test, and of another network namespace.
var podAddrs = []netip.Addr{netip.MustParseAddr("10.244.0.10"), netip.MustParseAddr("fd00:10:244::10")}

// podNamespace makes a network namespace, until it is closed.
func podNamespace(t *testing.T, name string) (ns *traffic.Namespace, cookie uint64) {
	t.Helper()
	ns, err := traffic.NewNamespace(traffic.RunName("hg-netdev") + "-" + name)
	if err != nil {
		t.Fatal(err)
	}
	in(t, ns, func() (err error) {
		cookie, err = datapath.OwnNamespace()
		return err
	})
	return ns, cookie
}

func in(t *testing.T, ns *traffic.Namespace, f func() error) {
	t.Helper()
	if err := ns.Do(f); err != nil {
		t.Fatalf("%s: %v", ns.Name(), err)
	}
}

// ofPod gives a device the addresses of the pod and sets it up.
func ofPod(device string) error {
	l, err := netlink.LinkByName(device)
	if err != nil {
		return err
	}
	for _, a := range podAddrs {
		addr := &netlink.Addr{IPNet: &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(a.BitLen(), a.BitLen())}, Flags: unix.IFA_F_NODAD}
		if err := netlink.AddrAdd(l, addr); err != nil {
			return err
		}
	}
	return netlink.LinkSetUp(l)
}

// leadToPod sets a device of the node up, with routes to the pod.
func leadToPod(t *testing.T, device string) {
	t.Helper()
	l, err := netlink.LinkByName(device)
	if err == nil {
		err = netlink.LinkSetUp(l)
	}
	for _, a := range podAddrs {
		if err == nil {
			err = netlink.RouteAdd(&netlink.Route{LinkIndex: l.Attrs().Index, Scope: netlink.SCOPE_LINK, Dst: &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(a.BitLen(), a.BitLen())}})
		}
	}
	if err != nil {
		t.Fatalf("%s: %v", device, err)
	}
}

// leadTo makes a veth that leads to the namespace of the pod.
func leadTo(t *testing.T, ns *traffic.Namespace, device string) {
	t.Helper()
	err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: device}, PeerName: "eth0"})
	if err == nil {
		err = move("eth0", ns.Path())
	}
	if err != nil {
		t.Fatalf("%s: %v", device, err)
	}
	in(t, ns, func() error { return ofPod("eth0") })
	leadToPod(t, device)
}

// move moves a device of the network namespace of this thread to that of a file.
func move(device, file string) error {
	to, err := unix.Open(file, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(to)
	l, err := netlink.LinkByName(device)
	if err != nil {
		return err
	}
	return netlink.LinkSetNsFd(l, to)
}

func remove(t *testing.T, device string) {
	t.Helper()
	l, err := netlink.LinkByName(device)
	if err == nil {
		err = netlink.LinkDel(l)
	}
	if err != nil {
		t.Fatalf("remove %s: %v", device, err)
	}
}

func closed(t *testing.T, ns *traffic.Namespace) {
	t.Helper()
	if err := ns.Close(); err != nil {
		t.Error(err)
	}
}

const (
	settle  = 5 * time.Millisecond  // as long as changes gather
	looking = 10 * time.Millisecond // as long as it takes to look through hidden namespaces
)

// podWatch follows the devices of the node, with one pod whose sockets are to be left alone.
type podWatch struct {
	t      *testing.T
	seen   chan netdev.Seen
	missed chan error
	last   netdev.Seen
	looked atomic.Int32 // times that network namespaces were looked through
	hidden atomic.Bool  // the namespaces are not to be seen
}

func watchPod(t *testing.T, hidden bool) *podWatch {
	t.Helper()
	w := &podWatch{t: t, seen: make(chan netdev.Seen, 100), missed: make(chan error, 100)}
	w.hidden.Store(hidden)
	cluster := netdev.NewCluster()
	cluster.SetPods([]netdev.Pod{{Name: "default/att", Addrs: podAddrs, PacketsOnly: true}})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	each := func(do func(string, uint64) error) error {
		w.looked.Add(1)
		if w.hidden.Load() {
			time.Sleep(looking)
			return nil
		}
		return datapath.EachNamespace(do)
	}
	go func() {
		ended <- netdev.WatchDevices(ctx, netdev.Patterns{}, nil, cluster, each, func(s netdev.Seen) { w.seen <- s }, func(pod string, why error) { w.missed <- why })
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return w
}

// want waits until a device is there, that of the pod with a network namespace.
func (w *podWatch) want(what, device string, netns uint64) {
	w.t.Helper()
	timeout := time.After(patience)
	for !w.has(device, netns) {
		select {
		case w.last = <-w.seen:
		case <-timeout:
			w.t.Fatalf("%s: devices are %+v, want %s with network namespace %d", what, w.last.Devices, device, netns)
		}
	}
}

// has says whether a device is there, that of the pod with a network namespace.
func (w *podWatch) has(device string, netns uint64) bool {
	return slices.ContainsFunc(w.last.Devices, func(d netdev.Device) bool { return d.Name == device && d.Netns == netns })
}

// wantMissed waits until the pod is missed, for this reason.
func (w *podWatch) wantMissed(what, reason string) {
	w.t.Helper()
	select {
	case err := <-w.missed:
		if !strings.Contains(err.Error(), reason) {
			w.t.Errorf("%s: the pod is missed for %q, want %q", what, err, reason)
		}
	case <-time.After(patience):
		w.t.Errorf("%s: the pod is not missed", what)
	}
}

// TestThePodIsBehindItsDevice has another network namespace with the addresses of the pod, which is found first.
func TestThePodIsBehindItsDevice(t *testing.T) {
	testenv.Need(t)
	twin, _ := podNamespace(t, "a")
	defer closed(t, twin)
	in(t, twin, func() error { return ofPod("lo") })
	pod, cookie := podNamespace(t, "b")
	leadTo(t, pod, "pod0")
	w := watchPod(t, true)
	w.want("no process is in the pod", "pod0", 0)
	w.wantMissed("no process is in the pod", "no process or visible mount")
	uplink := mustAddDevice(t, "up-a")
	before, began := w.looked.Load(), time.Now()
	for i := range 20 {
		mustAddress(t, netlink.AddrAdd, uplink, fmt.Sprintf("192.0.2.%d/24", i+1))
		time.Sleep(4 * settle)
	}
	if n, most := w.looked.Load()-before, int32(time.Since(began)/(50*looking))+2; n > most {
		t.Errorf("the network namespaces were looked through %d times while addresses came, want %d at most", n, most)
	}
	w.hidden.Store(false)
	w.want("a process is there", "pod0", cookie)

	before = w.looked.Load()
	mustRoute(t, uplink, "192.0.2.254", 5)
	w.want("another device comes", "up-a", 0)
	if n := w.looked.Load() - before; n > 0 || !w.has("pod0", cookie) {
		t.Errorf("the network namespaces were looked through %d times more, want never, and the pod to stay: %+v", n, w.last.Devices)
	}

	remove(t, "pod0")
	closed(t, pod)
	pod, cookie = podNamespace(t, "c")
	leadTo(t, pod, "pod0")
	w.want("the pod comes again", "pod0", cookie)

	inner, cookie := podNamespace(t, "d")
	in(t, pod, func() error { return move("eth0", inner.Path()) })
	in(t, inner, func() error { return ofPod("eth0") })
	w.want("the pod gives its device to another namespace", "pod0", cookie)
	remove(t, "pod0")
	closed(t, inner)
	closed(t, pod)
}

// TestOtherDevicesTellNoNamespaceOfAPod has devices that lead to no namespace, or tell that of another device.
func TestOtherDevicesTellNoNamespaceOfAPod(t *testing.T) {
	testenv.Need(t)
	other, _ := podNamespace(t, "a")
	defer closed(t, other)
	in(t, other, func() error {
		if err := netlink.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "below"}}); err != nil {
			return err
		}
		return ofPod("below")
	})
	home := fmt.Sprintf("/proc/%d/ns/net", os.Getpid())
	for name, add := range map[string]func() error{
		"a veth within the node": func() error {
			return netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "pod0"}, PeerName: "pod9"})
		},
		"a macvlan of a device elsewhere": func() error {
			return other.Do(func() error {
				below, err := netlink.LinkByName("below")
				if err == nil {
					err = netlink.LinkAdd(&netlink.Macvlan{LinkAttrs: netlink.LinkAttrs{Name: "pod0", ParentIndex: below.Attrs().Index}})
				}
				if err == nil {
					err = move("pod0", home)
				}
				return err
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			addOrSkip(t, name, add)
			w := watchPod(t, false)
			w.want("the device is there", "pod0", 0)
			w.wantMissed("the device is there", "is no veth")
			if n := w.looked.Load(); n > 0 {
				t.Errorf("the network namespaces were looked through %d times, want never", n)
			}
		})
	}
}

// addOrSkip makes the device pod0 lead to the pod until the test ends.
func addOrSkip(t *testing.T, name string, add func() error) {
	t.Helper()
	if err := add(); errors.Is(err, unix.EOPNOTSUPP) {
		testenv.Lacks(t, name, err)
	} else if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { remove(t, "pod0") })
	leadToPod(t, "pod0")
}

// TestAVirtualMachineIsNotMissed has a pod behind a tap: no sockets of the kernel of the node are there.
func TestAVirtualMachineIsNotMissed(t *testing.T) {
	testenv.Need(t)
	addOrSkip(t, "tap", func() error {
		err := netlink.LinkAdd(&netlink.Tuntap{LinkAttrs: netlink.LinkAttrs{Name: "pod0"}, Mode: netlink.TUNTAP_MODE_TAP})
		if errors.Is(err, unix.ENOENT) {
			err = unix.EOPNOTSUPP // no /dev/net/tun
		}
		return err
	})
	w := watchPod(t, false)
	w.want("the device is there", "pod0", 0)
	for i := range 5 {
		name := fmt.Sprint("up-", i)
		uplink := mustAddDevice(t, name)
		mustAddress(t, netlink.AddrAdd, uplink, fmt.Sprintf("192.0.%d.1/24", i))
		mustRoute(t, uplink, fmt.Sprintf("192.0.%d.254", i), 5+i)
		w.want("another device comes", name, 0)
	}
	if len(w.missed) > 0 {
		t.Errorf("the pod is missed: %v", <-w.missed)
	}
}
