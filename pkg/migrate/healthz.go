package migrate

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"time"
)

// askTimeout is how long whoever listens may take to say whether it is healthy.
const askTimeout = time.Second

// askHealthz asks where load balancers do, and returns why a kube-proxy there has not written
// rules for these families yet, "" if it has. A kube-proxy that starts says 200 before it has:
// only the families that it names are in force. Before Kubernetes 1.32 it names none, which
// named says: then its rules have to be looked at. So they have where it answers nowhere.
func askHealthz(ctx context.Context, address string, families map[string]bool) (missing string, named bool) {
	if address == "" {
		return "", false
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+reachable(address)+"/healthz", nil)
	if err != nil {
		return err.Error(), false
	}
	answer, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(request)
	if err != nil {
		return fmt.Sprintf("nobody answers at %s: %s", address, err), false
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Sprintf("%s answers %s", address, answer.Status), false
	}
	var said struct {
		Status map[string]struct{} `json:"status"`
	}
	if err := json.NewDecoder(answer.Body).Decode(&said); err != nil || said.Status == nil {
		return "", false
	}
	for family := range families {
		if _, ok := said.Status[family]; !ok {
			return fmt.Sprintf("%s answers, and has no rules of %s yet", address, family), true
		}
	}
	return "", true
}

// reachable returns the address by which a listener is asked on its own machine.
func reachable(address string) string {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return address
	}
	if addr, err := netip.ParseAddr(host); host == "" || err == nil && addr.IsUnspecified() {
		host = "127.0.0.1"
		if addr.Is6() {
			host = "::1"
		}
	}
	return net.JoinHostPort(host, port)
}
