// Package kube watches Services, EndpointSlices, this node's Node (where probes are
// allowed, all Nodes) and, where the API server has them, ServiceCIDRs.
//
// Of the objects only what a load balancer needs is kept (package convert). What
// is wrong with an object is a Problem and touches nothing else: its last good
// version stays in force. While the API server cannot be reached everything
// stays as it was.
package kube

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/source/convert"
	"github.com/headgate/headgate/pkg/source/objects"
)

// Config says which API server to ask and how. Only Node must be set.
type Config struct {
	Node       string // name of this node
	Kubeconfig string // path; "" for the service account of the pod we are
	// Servers are URLs of API servers that are used in place of the one in the
	// kubeconfig, or of the Service "kubernetes", which somebody has to balance
	// before we can. The one that answered last is asked first; each node has
	// its own order of them.
	Servers []string
	// TLSServerName is the name that the certificates of all servers must have;
	// "" means that of the kubeconfig, or where it has none their own hosts.
	TLSServerName string
	QPS           float32 // requests per second, 0 means 5, below 0 no limit; watches are free
	Burst         int     // requests at once, 0 means 10
	Version       string  // of the program, for the server's logs
	// ServersFile is where the servers are kept that answered last, or that the
	// cluster names. They are asked where no other can be reached, "" for as long
	// as the process lives.
	ServersFile string
	// Notice is told, once each, what people may want to know of the API server.
	// May be nil.
	Notice func(string) `json:"-"`
	// Requests is told of every request. May be nil.
	Requests Requests `json:"-"`
	Convert  convert.Options
	Pods     bool // tell of the Pods on this node
}

// Source is the Services of a cluster as one node needs them. Run may be called
// once.
type Source struct {
	out      *objects.Batch
	conn     *connection
	watchers []*watcher
	stores   []cache.ReflectorStore // of each watcher
	backoff  wait.Backoff
	events   *events
	began    time.Time

	mu      sync.Mutex
	tell    func(string)
	noticed map[string]bool
}

// New returns a source that has not asked anything yet.
func New(cfg Config) (*Source, error) {
	if cfg.Node == "" {
		return nil, errors.New("watch the API server: the name of this node is missing")
	}
	s := &Source{began: time.Now(), tell: cfg.Notice, noticed: map[string]bool{}, backoff: defaultBackoff(), out: objects.NewBatch(cfg.Node, objects.ServiceKind, objects.SliceKind, objects.NodeKind)}
	var err error
	pauses := newPauses()
	if s.conn, err = connect(cfg, s.unreachable, pauses.cut, s.notice); err != nil {
		return nil, err
	}
	for _, k := range objects.Kinds(cfg.Node, cfg.Convert, cfg.Pods) {
		s.stores = append(s.stores, reflected{objects.NewStore(k, s.out)})
		w := &watcher{Kind: k, codec: runtime.NewParameterCodec(s.conn.scheme), contact: &contact{},
			refused: s.refused, notice: s.notice, pauses: pauses, pause: 5 * time.Minute}
		if w.client, err = s.conn.client(k.Version, keeper{s.conn.codecs, k}); err != nil {
			return nil, err
		}
		if k.Earlier != (schema.GroupVersion{}) {
			if w.older, err = s.conn.client(k.Earlier, keeper{s.conn.codecs, k}); err != nil {
				return nil, err
			}
		}
		s.watchers = append(s.watchers, w)
	}
	recorder, err := s.conn.recorder(cfg.Node)
	if err != nil {
		return nil, err
	}
	s.events = newEvents(recorder, s.mayNotTell)
	return s, nil
}

// notice tells something, unless it has been told before.
func (s *Source) notice(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.tell != nil && !s.noticed[text] {
		s.noticed[text] = true
		s.tell(text)
	}
}

// Report says everything that is wrong now, with this source or with what became
// of it. What is about a Service, or a slice of one, becomes an event on the
// Service while Run runs, and what is about the node one on its Node. It does not wait, and may be called from anywhere.
func (s *Source) Report(problems []lb.Problem) { s.events.report(problems) }

// mayNotTell notes why events may not be written, nil once they may.
func (s *Source) mayNotTell(err error) {
	var problems []lb.Problem
	if err != nil {
		problems = []lb.Problem{{Scope: lb.ScopeNode, Object: eventKind, Reason: "may not be written: " + message(err),
			Remedy: "allow the agent's ServiceAccount to create and patch events of events.k8s.io"}}
	}
	s.out.Note(objects.ID{Kind: eventKind}, problems)
}

// Run calls the function with everything there is, once that is known, and from
// then on with every change, until the context ends; it returns nil then. Changes
// that come while the function works are passed on together; none waits for
// others. It calls from its own goroutine only, and what it passes is not to be
// changed. Of ServiceCIDRs it speaks when it has heard of some.
func (s *Source) Run(ctx context.Context, update func(lb.Update)) error {
	// client-go logs by itself what Health says.
	ctx = klog.NewContext(ctx, klog.Logger{})
	var reflectors sync.WaitGroup
	for i, w := range s.watchers {
		reflectors.Go(func() { w.reflect(ctx, s.stores[i], s.backoff) })
	}
	reflectors.Go(func() { s.events.run(ctx) })
	reflectors.Go(func() { s.conn.reached.resolve(ctx) })
	defer s.conn.http.CloseIdleConnections()
	defer reflectors.Wait()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.out.Wake():
		}
		if u, ok := s.out.Next(); ok {
			if s.conn.kept != nil {
				s.conn.kept.take(u)
			}
			u.APIServers = s.conn.reached.all()
			update(u)
		}
	}
}

// Health says how it gets on with the API server. It may be called at any time
// from anywhere.
func (s *Source) Health() Health {
	h := Health{Began: s.began, Synced: s.out.Synced()}
	h.Server, h.Servers = s.conn.servers.state()
	for i, w := range s.watchers {
		if !isNeeded(w.Name) {
			continue
		}
		last, cause := w.contact.state()
		if i == 0 || last.Before(h.LastContact) {
			h.LastContact = last
		}
		if h.Cause == nil && cause != nil {
			h.Cause = fmt.Errorf("watch %s: %w", w.Path, cause)
		}
	}
	return h
}

// unreachable notes an error of the connection for everyone who has none. Not all
// of them reach those who sent the request.
func (s *Source) unreachable(err error) {
	for _, w := range s.watchers {
		w.contact.failed(err)
	}
}

// refused goes on without a kind of objects that can be done without.
func (s *Source) refused(kind string, err error) {
	if isNeeded(kind) {
		return
	}
	var problems []lb.Problem
	if apierrors.IsForbidden(err) {
		problems = []lb.Problem{{Scope: lb.ScopeNode, Object: kind, Reason: "may not be read: " + message(err),
			Remedy: "allow the agent's ServiceAccount to list and watch it"}}
	}
	s.out.Note(objects.ID{Kind: kind}, problems)
	s.out.Answered(kind)
}

// isNeeded says whether there is no going on without a kind of objects.
func isNeeded(kind string) bool { return kind == objects.ServiceKind || kind == objects.SliceKind }

// message returns what the API server says, without the words around it.
func message(err error) string {
	var status apierrors.APIStatus
	if errors.As(err, &status) && status.Status().Reason == metav1.StatusReasonForbidden {
		return status.Status().Message
	}
	return err.Error()
}
