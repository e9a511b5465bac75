package healthcheck

import (
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/headgate/headgate/pkg/lb"
)

// DefaultTimeout is how long an update may wait: twice the sync period that
// kube-proxy has by default.
const DefaultTimeout = 60 * time.Second

// toBeDeleted is the taint by which the cluster autoscaler announces that it is
// going to delete a node.
const toBeDeleted = "ToBeDeletedByClusterAutoscaler"

// ProxyConfig is what a ProxyServer needs.
type ProxyConfig struct {
	// Timeout is how long an update may wait before the proxy counts as
	// unhealthy; 0 is DefaultTimeout.
	Timeout time.Duration
	// Now tells the time; nil is time.Now.
	Now func() time.Time
	// Healthz and Livez are told the status code of every answer. May be nil.
	Healthz func(code int)
	Livez   func(code int)
}

// Node is what of the Node object says whether load balancers should still
// send clients to this node.
type Node struct {
	Deleting bool     // it has a deletion timestamp
	Taints   []string // keys
}

// ProxyServer answers /healthz and /livez. /livez asks whether the proxy keeps
// up with changes, /healthz also whether the node is there to stay (KEP-3836).
type ProxyServer struct {
	cfg ProxyConfig

	mu       sync.RWMutex
	node     *Node // nil while unknown
	families map[lb.Family]*progress
	contact  string // why there is no contact with the API server
	unfit    string // why programs are not in force
	awaited  awaited
}

// awaited is what of a proxy that starts is still to come, and from when on it is not fit
// without.
type awaited struct {
	reason string // "" for nothing
	from   time.Time
}

// progress is how far one family is.
type progress struct {
	updated time.Time // zero if never
	queued  time.Time // oldest update that waits, zero if none
}

// health is the body of an answer, and each family's part of it.
type health struct {
	LastUpdated  time.Time                  `json:"lastUpdated"`
	CurrentTime  time.Time                  `json:"currentTime"`
	NodeEligible *bool                      `json:"nodeEligible,omitempty"`
	Healthy      bool                       `json:"healthy"`
	Reason       string                     `json:"reason,omitempty"` // what is wrong, for people
	Status       map[lb.Family]familyHealth `json:"status,omitempty"`
}

type familyHealth struct {
	LastUpdated time.Time `json:"lastUpdated"`
	Healthy     bool      `json:"healthy"`
}

// NewProxyServer returns a server for a proxy to which nothing has happened
// yet: it is healthy, but of its node nothing is known.
func NewProxyServer(cfg ProxyConfig) *ProxyServer {
	if cfg.Timeout == 0 {
		cfg.Timeout = DefaultTimeout
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	nobody := func(int) {}
	if cfg.Healthz == nil {
		cfg.Healthz = nobody
	}
	if cfg.Livez == nil {
		cfg.Livez = nobody
	}
	return &ProxyServer{cfg: cfg, families: map[lb.Family]*progress{}}
}

// QueuedUpdate says that there is something to program for a family.
func (p *ProxyServer) QueuedUpdate(f lb.Family) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if of := p.of(f); of.queued.IsZero() {
		of.queued = p.cfg.Now()
	}
}

// Updated says that all there was to program for a family is in force.
func (p *ProxyServer) Updated(f lb.Family) {
	p.mu.Lock()
	defer p.mu.Unlock()
	*p.of(f) = progress{updated: p.cfg.Now()}
}

func (p *ProxyServer) of(f lb.Family) *progress {
	if p.families[f] == nil {
		p.families[f] = &progress{}
	}
	return p.families[f]
}

// SetNode says what is known of the node; nil is nothing.
func (p *ProxyServer) SetNode(n *Node) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.node = n
}

// SetContact says why there is no contact with the API server, "" while there is.
// The answers name it; their code stays as it is, since what is in force stays.
func (p *ProxyServer) SetContact(reason string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.contact = reason
}

// SetUnfit says why programs are not in force, "" while all are. /healthz is 503
// meanwhile.
func (p *ProxyServer) SetUnfit(reason string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.unfit = reason
}

// SetAwaited says what of a proxy that starts is still to come, "" for nothing. From a time on
// /healthz is 503 meanwhile: until then another proxy's rules serve.
func (p *ProxyServer) SetAwaited(reason string, from time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.awaited = awaited{reason, from}
}

// Timeout is how long an update may wait.
func (p *ProxyServer) Timeout() time.Duration { return p.cfg.Timeout }

// Fit says whether clients that are sent here are balanced: the proxy is healthy
// and its programs are in force.
func (p *ProxyServer) Fit() bool {
	p.mu.RLock()
	fit := p.unfit == "" && (p.awaited.reason == "" || p.cfg.Now().Before(p.awaited.from))
	p.mu.RUnlock()
	return fit && p.Healthy()
}

// Healthy says whether no family has had an update waiting for too long.
func (p *ProxyServer) Healthy() bool { return p.health().Healthy }

// NodeEligible says whether load balancers should still send clients here: the
// node is known, and neither being deleted nor going to be.
func (p *ProxyServer) NodeEligible() bool {
	eligible, _ := p.eligibility()
	return eligible
}

func (p *ProxyServer) health() health {
	p.mu.RLock()
	defer p.mu.RUnlock()
	h := health{CurrentTime: p.cfg.Now(), Healthy: true, Status: map[lb.Family]familyHealth{}}
	for f, of := range p.families {
		late := !of.queued.IsZero() && h.CurrentTime.Sub(of.queued) >= p.cfg.Timeout
		h.Status[f] = familyHealth{LastUpdated: of.updated, Healthy: !late}
		h.Healthy = h.Healthy && !late
		if of.updated.After(h.LastUpdated) {
			h.LastUpdated = of.updated
		}
	}
	if !h.Healthy {
		h.because("changes wait to be brought into the kernel")
	}
	h.because(p.unfit)
	h.because(p.awaited.reason)
	h.because(p.contact)
	return h
}

// because adds a reason, "" for none.
func (h *health) because(reason string) {
	if h.Reason != "" && reason != "" {
		h.Reason += "; "
	}
	h.Reason += reason
}

// eligibility says whether load balancers should still send clients here, and
// why not.
func (p *ProxyServer) eligibility() (eligible bool, why string) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	switch {
	case p.node == nil && p.contact != "":
		return false, "" // the contact is why
	case p.node == nil:
		return false, "the Node object is not known yet"
	case p.node.Deleting || slices.Contains(p.node.Taints, toBeDeleted):
		return false, "the node is going to be deleted"
	default:
		return true, ""
	}
}

// awaits says whether something of the proxy is still to come.
func (p *ProxyServer) awaits() bool {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.awaited.reason != ""
}

// Handler returns what is to be served on healthzBindAddress.
func (p *ProxyServer) Handler() http.Handler { return p.handler(p.Fit) }

// ReadyHandler is for those who ask whether this proxy serves, not only the rules of another.
func (p *ProxyServer) ReadyHandler() http.Handler {
	return p.handler(func() bool { return p.Fit() && !p.awaits() })
}

func (p *ProxyServer) handler(fit func() bool) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) {
		h := p.health()
		eligible, why := p.eligibility()
		h.NodeEligible = &eligible
		h.because(why)
		p.cfg.Healthz(h.write(w, fit() && eligible))
	})
	mux.HandleFunc("/livez", func(w http.ResponseWriter, _ *http.Request) {
		h := p.health()
		p.cfg.Livez(h.write(w, h.Healthy))
	})
	return mux
}

// write answers. Old kube-proxies synced all the time, and there are checks
// which expect that: a good answer is always fresh.
func (h health) write(w http.ResponseWriter, ok bool) int {
	if ok {
		h.LastUpdated = h.CurrentTime
	}
	return writeHealth(w, ok, h)
}
