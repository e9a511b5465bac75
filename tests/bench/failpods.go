package main

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/headgate/headgate/pkg/traffic"
)

// pod is a backend in a network namespace of its own, behind a veth pair, that can
// fail in many ways.
type pod struct {
	ns   *traffic.Namespace
	link netlink.Link // to it, nil before there is one
	node netip.Addr   // what its answers go to
	addr netip.Addr

	number byte         // its answer
	delay  atomic.Int64 // ns before it answers; below 0: it never does
	mu     sync.Mutex
	ports  map[uint16]net.Listener
}

// newPods makes so many pods, which listen on ports.
func newPods(n int, ports ...uint16) (pods []*pod, err error) {
	for i := range n {
		p, err := newPod(i)
		if p != nil {
			pods = append(pods, p)
		}
		if err == nil {
			err = p.listen(ports...)
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("make pod %d: %w", i, err), closePods(pods))
		}
	}
	return pods, nil
}

func closePods(pods []*pod) error {
	var errs []error
	for _, p := range pods {
		p.refuse()
		if p.link != nil { // the namespace may live on by a socket for a while
			errs = append(errs, netlink.LinkDel(p.link))
		}
		errs = append(errs, p.ns.Close())
	}
	return errors.Join(errs...)
}

// newPod makes a pod and its link. It is returned if there is something to close.
func newPod(i int) (*pod, error) {
	name := fmt.Sprintf("fail-%d", i)
	ns, err := traffic.NewNamespace(fmt.Sprintf("hgb%d-%s", os.Getpid(), name))
	if err != nil {
		return nil, err
	}
	p := &pod{
		ns: ns, number: byte(i), ports: map[uint16]net.Listener{},
		node: netip.AddrFrom4([4]byte{172, 31, byte(i), 1}), addr: netip.AddrFrom4([4]byte{172, 31, byte(i), 2}),
	}
	f, err := os.Open(ns.Path())
	if err != nil {
		return p, err
	}
	defer f.Close()
	link := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name}, PeerName: "eth0", PeerNamespace: netlink.NsFd(f.Fd())}
	if err := netlink.LinkAdd(link); err != nil {
		return p, fmt.Errorf("add veth %s: %w", name, err)
	}
	p.link = link
	if err := raise(name, p.node); err != nil {
		return p, err
	}
	return p, ns.Do(func() error { return raise("eth0", p.addr) })
}

// raise gives a device an address and sets it up.
func raise(device string, a netip.Addr) error {
	link, err := netlink.LinkByName(device)
	if err != nil {
		return err
	}
	ip := &netlink.Addr{IPNet: &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(24, 32)}}
	return errors.Join(netlink.AddrAdd(link, ip), netlink.LinkSetUp(link))
}

// listen answers on ports, where it does not already.
func (p *pod) listen(ports ...uint16) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, port := range ports {
		if p.ports[port] != nil {
			continue
		}
		err := p.ns.Do(func() (err error) {
			p.ports[port], err = net.Listen("tcp4", netip.AddrPortFrom(p.addr, port).String())
			return err
		})
		if err != nil {
			delete(p.ports, port)
			return err
		}
		go p.serve(p.ports[port])
	}
	return nil
}

// serve answers what comes by every connection with a byte, until nobody listens any
// more.
func (p *pod) serve(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			if _, err := c.Read(make([]byte, 1)); err != nil {
				return
			}
			if d := p.delay.Load(); d >= 0 {
				time.Sleep(time.Duration(d))
				_, _ = c.Write([]byte{p.number})
			}
			_, _ = c.Read(make([]byte, 1)) // until the client has had enough
		}()
	}
}

// refuse ends to listen: the kernel answers with resets.
func (p *pod) refuse() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for port, l := range p.ports {
		_ = l.Close()
		delete(p.ports, port)
	}
}

// vanish lets nothing come back from a pod any more, and nobody is told.
func (p *pod) vanish() error {
	dst := &net.IPNet{IP: p.node.AsSlice(), Mask: net.CIDRMask(32, 32)}
	return p.ns.Do(func() error { return netlink.RouteAdd(&netlink.Route{Dst: dst, Type: unix.RTN_BLACKHOLE}) })
}
