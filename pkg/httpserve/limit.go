package httpserve

import (
	"crypto/tls"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"
)

// maxConnections is how many connections the servers of one Limit have at once.
const maxConnections = 256

// Brief is how long a health check takes at most, from the connection to the last byte of the answer.
const Brief = 5 * time.Second

// Limit bounds the connections of all servers that share it: idle clients never take every file
// descriptor of the process. A new connection closes the oldest one, so a health check is always answered.
type Limit struct {
	// Lasts is how long a connection lasts at most, with one request; 0 allows any time and keep-alive.
	Lasts time.Duration

	mu   sync.Mutex
	open []connection // the oldest first
}

type connection struct {
	net.Conn
	timeout *time.Timer // nil without one
}

// bound makes a server report its connections to the limit. That precedes the next accept.
func (l *Limit) bound(s *http.Server) {
	s.SetKeepAlivesEnabled(l.Lasts == 0)
	s.ConnState = func(c net.Conn, state http.ConnState) {
		switch state {
		case http.StateNew:
			l.add(c)
		case http.StateClosed, http.StateHijacked:
			l.remove(c)
		}
	}
}

// add counts a connection, and closes the oldest one above the limit.
func (l *Limit) add(c net.Conn) {
	added := connection{Conn: c}
	if l.Lasts > 0 {
		added.timeout = time.AfterFunc(l.Lasts, func() { abort(c) })
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open = append(l.open, added)
	if len(l.open) > maxConnections {
		abort(l.open[0].Conn)
		l.forget(0)
	}
}

// remove forgets a connection that has ended, unless add has done so.
func (l *Limit) remove(c net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if i := slices.IndexFunc(l.open, func(o connection) bool { return o.Conn == c }); i >= 0 {
		l.forget(i)
	}
}

func (l *Limit) forget(i int) {
	if timeout := l.open[i].timeout; timeout != nil {
		timeout.Stop()
	}
	l.open = slices.Delete(l.open, i, i+1)
}

// abort closes a connection at once. TLS would wait for the client to read an alert.
func abort(c net.Conn) {
	if secure, ok := c.(*tls.Conn); ok {
		c = secure.NetConn()
	}
	c.Close()
}
