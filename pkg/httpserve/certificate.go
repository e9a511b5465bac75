package httpserve

import (
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"
)

// ErrCertificate is that of files that hold no certificate, or no key that fits.
var ErrCertificate = errors.New("no certificate to serve with")

// Certificate is a server's certificate in two PEM files, which are read anew when
// they have changed: whoever renews certificates need not restart anything.
type Certificate struct {
	CertFile string // with the chain
	KeyFile  string
	// Report is told of files that cannot be used any more, once for each change of
	// them; the last good ones serve on. May be nil.
	Report func(error)

	mu     sync.Mutex
	seen   [2]version // of the files, when they were read last
	loaded *tls.Certificate
}

// version tells a file from what it was before.
type version struct {
	modified time.Time
	size     int64
}

// config returns what a server needs, or ErrCertificate.
func (c *Certificate) config() (*tls.Config, error) {
	if _, err := c.refresh(); err != nil {
		return nil, err
	}
	return &tls.Config{
		MinVersion:     tls.VersionTLS12,
		NextProtos:     []string{"http/1.1"},
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return c.current(), nil },
	}, nil
}

// current returns the certificate as the files have it, or had it when they were good.
func (c *Certificate) current() *tls.Certificate {
	loaded, err := c.refresh()
	if err != nil && c.Report != nil {
		c.Report(err)
	}
	return loaded
}

// refresh reads the files if they have changed since, and fails once for a change that
// is no good: also where one file has been replaced, and the other not yet.
func (c *Certificate) refresh() (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var now [2]version
	for i, file := range []string{c.CertFile, c.KeyFile} {
		if info, err := os.Stat(file); err == nil { // reading says why not
			now[i] = version{info.ModTime(), info.Size()}
		}
	}
	if c.loaded != nil && now == c.seen {
		return c.loaded, nil
	}
	c.seen = now
	pair, err := tls.LoadX509KeyPair(c.CertFile, c.KeyFile)
	if err != nil {
		return c.loaded, fmt.Errorf("%w: %s with key %s: %w", ErrCertificate, c.CertFile, c.KeyFile, err)
	}
	c.loaded = &pair
	return c.loaded, nil
}
