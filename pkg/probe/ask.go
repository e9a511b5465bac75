package probe

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/headgate/headgate/pkg/lb"
)

// patience is how long a backend has to answer, unless it is asked more often.
const patience = 5 * time.Second

// mostHeader is how many bytes of an answer are read: its status is within, and its
// body is not looked at.
const mostHeader = 16 << 10

// ask asks a target once. The error says why it is not well.
func ask(ctx context.Context, t target, interval time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, min(interval, patience))
	defer cancel()
	if t.kind == lb.HTTPProbe {
		return get(ctx, t)
	}
	c, err := (&net.Dialer{}).DialContext(ctx, "tcp", t.at.String())
	if err != nil {
		return err
	}
	return c.Close()
}

// get asks by HTTP. A redirection is an answer, as it is for the kubelet, and is
// not followed: it may lead to anywhere. No proxy of the environment is asked.
func get(ctx context.Context, t target) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+t.at.String()+t.path, nil)
	if err != nil {
		return err
	}
	request.Header.Set("User-Agent", "headgate-probe")
	transport := &http.Transport{DisableKeepAlives: true, DisableCompression: true, MaxResponseHeaderBytes: mostHeader}
	response, err := transport.RoundTrip(request)
	if err != nil {
		return err
	}
	if err := response.Body.Close(); err != nil {
		return err
	}
	if response.StatusCode < 200 || response.StatusCode > 399 {
		return fmt.Errorf("GET %s: status %d", t.path, response.StatusCode)
	}
	return nil
}
