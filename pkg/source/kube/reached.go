package kube

import (
	"context"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"sync"

	"github.com/headgate/headgate/pkg/lb"
)

// mostReached is how many addresses are kept to which a connection was made: a name may
// lead to others again and again.
const mostReached = 64

// reached is where this node reaches its API servers: the addresses of all servers in the
// configuration, as far as they are addresses or resolve, and those of connections.
type reached struct {
	names []*url.URL // hosts that are no addresses

	mu     sync.Mutex
	fixed  []lb.AddrPort
	dialed []lb.AddrPort // the newest last
}

// newReached takes the servers that the configuration names.
func newReached(servers ...*url.URL) *reached {
	r := &reached{}
	for _, u := range servers {
		if addr, err := netip.ParseAddr(u.Hostname()); err == nil {
			r.fixed = append(r.fixed, lb.AddrPort{Addr: addr.Unmap(), Port: portOf(u), Protocol: lb.TCP})
		} else {
			r.names = append(r.names, u)
		}
	}
	return r
}

// portOf returns the port of a URL.
func portOf(u *url.URL) uint16 {
	if port, err := strconv.ParseUint(u.Port(), 10, 16); err == nil {
		return uint16(port)
	}
	if u.Scheme == "http" {
		return 80
	}
	return 443
}

// resolve looks up the names, once.
func (r *reached) resolve(ctx context.Context) {
	for _, u := range r.names {
		addrs, err := net.DefaultResolver.LookupNetIP(ctx, "ip", u.Hostname())
		if err != nil {
			continue // a connection tells
		}
		for _, addr := range addrs {
			r.note(netip.AddrPortFrom(addr, portOf(u)))
		}
	}
}

// note keeps an address.
func (r *reached) note(to netip.AddrPort) {
	at := lb.AddrPort{Addr: to.Addr().Unmap().WithZone(""), Port: to.Port(), Protocol: lb.TCP}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.dialed = append(slices.DeleteFunc(r.dialed, func(a lb.AddrPort) bool { return a == at }), at)
	if len(r.dialed) > mostReached {
		r.dialed = slices.Delete(r.dialed, 0, 1)
	}
}

// all returns the addresses, sorted.
func (r *reached) all() []lb.AddrPort {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := slices.Concat([]lb.AddrPort{}, r.fixed, r.dialed)
	slices.SortFunc(out, lb.AddrPort.Compare)
	return slices.Compact(out)
}

// dialer makes connections and notes where they lead.
func (r *reached) dialer(d *net.Dialer) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := d.DialContext(ctx, network, address)
		if err == nil {
			if to, isTCP := c.RemoteAddr().(*net.TCPAddr); isTCP {
				r.note(to.AddrPort())
			}
		}
		return c, err
	}
}
