package main

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/headgate/headgate/tests/controlplane"
)

// lossesMost is how many backends with a client are taken away.
const lossesMost = 100

// behindLosses measures changes that come while the agent tells the client of a backend that is gone.
func (r *driver) behindLosses(c shape, all []*follower, t *table) error {
	server, err := r.serveBackends()
	if err != nil {
		return err
	}
	defer server.Close()
	if err := r.enter(r.agent.group); err != nil { // whose sockets are balanced
		return err
	}
	var told []time.Duration
	k := course{name: "behind one that lost a backend with a client", key: "behind_loss", count: min(lossesMost, len(all)/2)}
	k.run = func() (err error) { told, err = r.lose(server, all, k.count); return err }
	if err := r.row(c, k, all, t); err != nil {
		return err
	}
	r.took = told
	t.row(append(r.spread(c, course{name: "until that client is told", key: "told", count: k.count}), "", "")...)
	return r.leave()
}

// serveBackends listens at all addresses that backends may have, all of which are the node's.
func (r *driver) serveBackends() (l net.Listener, err error) {
	err = r.node().Do(func() error {
		if err := localRoute("10.128.0.0/9", nil); err != nil {
			return err
		}
		l, err = net.Listen("tcp4", fmt.Sprintf("0.0.0.0:%d", backendPort))
		return err
	})
	return l, err
}

// lose takes the backends of connections away, one after the other. Each time the next change comes as soon as that
// is in the map: r.took are these. It returns how long it took until the clients were told.
func (r *driver) lose(server net.Listener, all []*follower, n int) (told []time.Duration, err error) {
	if err := r.view.find(all); err != nil {
		return nil, err
	}
	var took []time.Duration
	for i := range n {
		f, next := all[2*i], all[2*i+1]
		client, err := r.connect(server, f.addr)
		if err != nil {
			return nil, err
		}
		loses := &follower{addr: f.addr, word: f.word, next: func(change int) *discoveryv1.EndpointSlice { return r.without(f, client.backend, change) }}
		r.took = nil
		if err := r.makeOne(loses); err != nil {
			return nil, err
		}
		lost := time.Now().Add(-r.took[0])
		f.word, r.took = loses.word, nil
		if err := r.makeOne(next); err != nil {
			return nil, err
		}
		took = append(took, r.took...)
		if err := client.awaitEnd(); err != nil {
			return nil, fmt.Errorf("the client of %s, which has lost %s: %w", f.addr, client.backend, err)
		}
		told = append(told, time.Since(lost))
		nap(50 * time.Millisecond) // losses that follow each other are told together
	}
	r.took = took
	return told, nil
}

// client is a connection to a frontend, with the end that the backend has.
type client struct {
	net.Conn
	accepted net.Conn
	backend  netip.Addr
}

// connect connects to a frontend.
func (r *driver) connect(server net.Listener, frontend netip.Addr) (c client, err error) {
	c.Conn, err = controlplane.Dialer(r.node())(r.ctx, "tcp4", netip.AddrPortFrom(frontend, servicePort).String())
	if err != nil {
		return c, err
	}
	if c.accepted, err = server.Accept(); err != nil {
		return c, err
	}
	at, err := netip.ParseAddrPort(c.accepted.LocalAddr().String())
	c.backend = at.Addr().Unmap()
	return c, err
}

// without returns the next slice of a follower, in which a backend is another one.
func (r *driver) without(f *follower, backend netip.Addr, change int) *discoveryv1.EndpointSlice {
	es := f.next(change)
	for i := range es.Endpoints {
		if es.Endpoints[i].Addresses[0] == backend.String() {
			r.made++
			es.Endpoints[i].Addresses[0] = changedEndpoint(r.made).String()
		}
	}
	return es
}

// makeOne makes a change, and returns when it is in the map.
func (r *driver) makeOne(f *follower) error {
	if err := r.send(f, time.Now(), false); err != nil {
		return err
	}
	from := time.Now()
	for waiting := []*follower{f}; len(waiting) > 0; nap(pause) {
		if waiting = r.arrived(waiting); len(waiting) > 0 {
			if err := r.late(time.Since(from)); err != nil {
				return err
			}
		}
	}
	return nil
}

// awaitEnd returns when the kernel has told the client that its backend is gone.
func (c client) awaitEnd() error {
	defer c.accepted.Close()
	defer c.Close()
	if err := c.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		return err
	}
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, unix.ECONNABORTED) {
		return fmt.Errorf("is not told that its connection has ended: %v", err)
	}
	return nil
}
