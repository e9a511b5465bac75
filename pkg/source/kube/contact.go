package kube

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/watch"
)

// Health is how a source gets on with the API server.
type Health struct {
	Began time.Time // when the source was made
	// Synced says whether everything there is has been passed on once.
	Synced bool
	// LastContact is until when all changes have been heard of: now while
	// Services and EndpointSlices are both being watched, else when that ended;
	// zero before the first contact. A server that falls silent without closing
	// its connection is noticed after 45 seconds.
	LastContact time.Time
	// Cause is why there is no contact, nil while there is.
	Cause error
	// Server is the URL of the server that answered last, "" for none.
	Server string
	// Servers is why a server that was asked did not answer the last time, nil
	// where it did; by URL.
	Servers map[string]error
}

// Age returns for how long there has been no contact: since the beginning where
// there was none.
func (h Health) Age(now time.Time) time.Duration {
	if h.LastContact.IsZero() {
		return now.Sub(h.Began)
	}
	return max(now.Sub(h.LastContact), 0)
}

// contact is when the API server last told us of one kind of object.
type contact struct {
	mu       sync.Mutex
	watching int       // streams that are open; those that end overlap with those that begin
	last     time.Time // when it was last heard of, while none is open
	cause    error     // what went wrong since
}

// heard notes an answer.
func (c *contact) heard() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last, c.cause = time.Now(), nil
}

// failed notes why there is none.
func (c *contact) failed(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cause = err
}

// streams counts the open streams.
func (c *contact) streams(change int) {
	c.heard()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.watching += change
}

// state returns when the server was last heard of, and what went wrong since.
func (c *contact) state() (last time.Time, cause error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.watching > 0 {
		return time.Now(), nil
	}
	return c.last, c.cause
}

// stream is a watch that notes its end. A reflector stops every watch, those
// too that ended by themselves.
type stream struct {
	watch.Interface
	stopped sync.Once
	contact *contact
}

func (c *contact) follow(w watch.Interface) watch.Interface {
	// client-go hands out an empty watch where the connection timed out.
	if _, ok := w.(*watch.StreamWatcher); !ok {
		return w
	}
	c.streams(1)
	return &stream{Interface: w, contact: c}
}

// Stop ends the watch.
func (s *stream) Stop() {
	s.stopped.Do(func() { s.contact.streams(-1) })
	s.Interface.Stop()
}
