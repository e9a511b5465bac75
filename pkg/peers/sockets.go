package peers

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"syscall"
	"time"

	"github.com/headgate/headgate/pkg/lb"
)

// dial opens the socket by which a peer is asked. Where that fails, such as while this node has not
// its address yet, it is tried again.
func (p *Prober) dial(a *asked) {
	if a.conn != nil {
		return
	}
	conn, err := net.DialUDP("udp", &net.UDPAddr{IP: a.Ours.AsSlice()}, &net.UDPAddr{IP: a.Theirs.AsSlice(), Port: int(p.cfg.Port)})
	if err != nil {
		a.fail("cannot be asked: %s", err)
		return
	}
	a.conn = conn
	go p.hear(a, conn)
}

func (a *asked) hangUp() {
	if a != nil && a.conn != nil {
		a.conn.Close()
		a.conn = nil
	}
}

// hear takes the answers of a peer until its socket is closed.
func (p *Prober) hear(a *asked, conn *net.UDPConn) {
	b := make([]byte, 2*messageLen)
	for {
		n, err := conn.Read(b)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		p.mu.Lock()
		m, ok := decode(b[:n])
		switch {
		case a.conn != conn:
		case errors.Is(err, syscall.ECONNREFUSED):
			a.hasRefused(time.Now())
		case err != nil || !ok || m.nonce != a.nonce:
		case m.kind == echoes, m.kind == answer:
			a.hasAnswered(time.Now(), m.kind, m.digest, p.digest())
		}
		p.mu.Unlock()
	}
}

// listen has questions answered at the addresses of this node, each by sockets of its own: an
// answer comes from the address that was asked. Where that fails it is tried again.
func (p *Prober) listen(here lb.Node) {
	at := addressesOf(here)
	maps.DeleteFunc(p.here, func(a netip.Addr, l *listener) bool {
		gone := !slices.Contains(at, a)
		if gone {
			l.close()
		}
		return gone
	})
	was := p.deaf
	p.deaf = deafness{}
	for _, a := range at {
		if p.here[a] != nil {
			continue
		}
		l, why := p.open(a)
		if l == nil {
			p.deaf = why
			continue
		}
		p.here[a] = l
		for _, conn := range l {
			go p.reply(conn)
		}
	}
	p.stale = p.stale || p.deaf != was
}

// open returns sockets for questions to an address, or why there are none. A node that would lose what
// is carried does not answer.
func (p *Prober) open(a netip.Addr) (*listener, deafness) {
	if device := p.cfg.Filtered(a); device != "" {
		return nil, deafness{
			fmt.Sprintf("%s, which has its address %s, drops packets of clients that are answered by another device (rp_filter)", device, a),
			fmt.Sprintf("set net.ipv4.conf.%s.rp_filter to 2 (loose), or give the node an InternalIP of another device", device),
		}
	}
	l, err := listenFor(netip.AddrPortFrom(a, p.cfg.Port), p.digest())
	if err != nil {
		return nil, deafness{err.Error(), "free the port (ss -ulpn, ip fou show), which is tried again all the time"}
	}
	return l, deafness{}
}

// reply answers the nodes of the cluster, and nobody else.
func (p *Prober) reply(conn *net.UDPConn) {
	b := make([]byte, 2*messageLen)
	for {
		n, from, err := conn.ReadFromUDPAddrPort(b)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		m, ok := decode(b[:n])
		switch at := from.Addr().Unmap(); {
		case err != nil || !ok:
		case m.kind == question && p.isNode(at):
			// A lost answer is asked for again.
			_, _ = conn.WriteToUDPAddrPort(message{p.answers(), m.nonce, p.digestFor(m.digest)}.encode(), from)
		}
	}
}

// answers is the kind of this node's answers.
func (p *Prober) answers() kind {
	if p.cfg.Echoes() {
		return echoes
	}
	return answer
}

// isNode says whether there is a node at an address.
func (p *Prober) isNode(at netip.Addr) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, peer := range p.peers {
		if slices.Contains(peer.Addrs, at) {
			return true
		}
	}
	return false
}
