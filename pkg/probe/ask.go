package probe

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"time"

	"github.com/headgate/headgate/pkg/lb"
)

// patience is how long a backend has to answer, unless it is asked more often.
const patience = 5 * time.Second

// ask asks a backend once. The error says why it is not well.
func ask(ctx context.Context, backend lb.AddrPort, p lb.Probe) error {
	ctx, cancel := context.WithTimeout(ctx, min(max(p.Interval, leastInterval), patience))
	defer cancel()
	at := netip.AddrPortFrom(backend.Addr, backend.Port)
	if p.Port != 0 {
		at = netip.AddrPortFrom(backend.Addr, p.Port)
	}
	if p.Kind == lb.HTTPProbe {
		return get(ctx, at, p.Path)
	}
	c, err := (&net.Dialer{}).DialContext(ctx, "tcp", at.String())
	if err != nil {
		return err
	}
	return c.Close()
}

// get asks by HTTP. A redirection is an answer, as it is for the kubelet, and is
// not followed: it may lead to anywhere. No proxy of the environment is asked.
func get(ctx context.Context, at netip.AddrPort, path string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+at.String()+path, nil)
	if err != nil {
		return err
	}
	request.Header.Set("User-Agent", "headgate-probe")
	transport := &http.Transport{DisableKeepAlives: true, DisableCompression: true}
	defer transport.CloseIdleConnections()
	response, err := transport.RoundTrip(request)
	if err != nil {
		return err
	}
	if err := response.Body.Close(); err != nil {
		return err
	}
	if response.StatusCode < 200 || response.StatusCode > 399 {
		return fmt.Errorf("GET %s: %s", path, response.Status)
	}
	return nil
}
