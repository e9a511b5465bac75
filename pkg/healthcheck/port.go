package healthcheck

import (
	"encoding/json"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"

	"github.com/headgate/headgate/pkg/httpserve"
	"github.com/headgate/headgate/pkg/lb"
)

// port is an open port with its server.
type port struct {
	listener net.Listener
	server   *http.Server
}

// servePort serves until the port is closed.
func servePort(l net.Listener, h http.Handler, limit *httpserve.Limit) *port {
	p := &port{listener: l, server: httpserve.NewServer(h, limit)}
	go func() { _ = p.server.Serve(p.listener) }() // ends with close only
	return p
}

// close frees the port at once. The server closes only listeners that its
// goroutine has come to serve, so the listener is closed first.
func (p *port) close() {
	p.listener.Close()
	p.server.Close()
}

// address is what net.Listen takes; without a host it means both families.
func address(addr netip.Addr, port uint16) string {
	if !addr.IsValid() {
		return net.JoinHostPort("", strconv.Itoa(int(port)))
	}
	return netip.AddrPortFrom(addr, port).String()
}

// close closes all that is open for the Service.
func (s *service) close() { s.closeOthers(nil) }

// closeOthers closes what is open at other addresses than these.
func (s *service) closeOthers(stay []netip.Addr) {
	for addr, p := range s.ports {
		if !slices.Contains(stay, addr) {
			p.close()
			delete(s.ports, addr)
		}
	}
}

// answer answers for a Service, whatever the path.
type answer struct {
	server *ServiceServer
	name   lb.ServiceName
}

// serviceHealth is the body of an answer.
type serviceHealth struct {
	Service struct {
		Namespace string `json:"namespace"`
		Name      string `json:"name"`
	} `json:"service"`
	LocalEndpoints      int  `json:"localEndpoints"`
	ServiceProxyHealthy bool `json:"serviceProxyHealthy"`
}

// ServeHTTP answers 200 if clients should be sent here, else 503.
func (a answer) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	var body serviceHealth
	body.Service.Namespace, body.Service.Name = a.name.Namespace, a.name.Name
	body.LocalEndpoints = a.server.localEndpoints(a.name)
	body.ServiceProxyHealthy = a.server.healthy()
	w.Header().Set("X-Load-Balancing-Endpoint-Weight", strconv.Itoa(body.LocalEndpoints))
	writeHealth(w, body.LocalEndpoints != 0 && body.ServiceProxyHealthy, body)
}

// localEndpoints is 0 for a Service that has just been closed.
func (s *ServiceServer) localEndpoints(name lb.ServiceName) int {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if svc := s.services[name]; svc != nil {
		return svc.LocalEndpoints
	}
	return 0
}

// writeHealth writes an answer and returns its status code.
func writeHealth(w http.ResponseWriter, healthy bool, body any) int {
	code := http.StatusOK
	if !healthy {
		code = http.StatusServiceUnavailable
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(body) // the client may be gone
	return code
}
