package contender

import (
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// apiServer is as much of an API server as a service proxy asks for: lists and
// watches of a few resources. Everybody may read everything, and what others write
// to it is taken no notice of.
type apiServer struct {
	server *http.Server
	nodes, services,
	slices *resource
}

// firstVersion is the resourceVersion of all that there is at the beginning.
const firstVersion = "1"

// resource is what is listed at a path, and what became of it.
type resource struct {
	version, kind string
	items         [][]byte // at the beginning

	mutex   sync.Mutex
	events  [][]byte      // that came after it, a line each: event i has the version i+2
	changed chan struct{} // closed when there are more
}

func newResource(version, kind string) *resource {
	return &resource{version: version, kind: kind, changed: make(chan struct{})}
}

// newAPIServer returns one that has nothing yet.
func newAPIServer() *apiServer {
	return &apiServer{
		nodes: newResource("v1", "Node"), services: newResource("v1", "Service"), slices: newResource("discovery.k8s.io/v1", "EndpointSlice"),
	}
}

// start serves on a listener, which it takes over.
func (a *apiServer) start(l net.Listener) {
	mux := http.NewServeMux()
	mux.Handle("GET /api/v1/nodes", a.nodes)
	mux.Handle("GET /api/v1/services", a.services)
	mux.Handle("GET /apis/discovery.k8s.io/v1/endpointslices", a.slices)
	mux.Handle("GET /apis/networking.k8s.io/v1/servicecidrs", newResource("networking.k8s.io/v1", "ServiceCIDR"))
	mux.HandleFunc("GET /api/v1/nodes/{name}", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(a.nodes.items[0])
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusNotFound)
		_, _ = w.Write([]byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`))
	})
	const patience = 10 * time.Second
	a.server = &http.Server{Handler: mux, ReadHeaderTimeout: patience}
	go func() { _ = a.server.Serve(l) }() // it ends when it is closed
}

// Close ends it, and every watch.
func (a *apiServer) Close() error { return a.server.Close() }

// change tells of an object that was added, modified or deleted.
func (r *resource) change(event string, o object) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if about, ok := o["metadata"].(object); ok {
		about["resourceVersion"] = strconv.Itoa(len(r.events) + 2)
	}
	r.events = append(r.events, append(object{"type": event, "object": o}.text(), '\n'))
	close(r.changed)
	r.changed = make(chan struct{})
}

// after returns the events behind the first n, and what is closed when there are
// more.
func (r *resource) after(n int) (events [][]byte, changed chan struct{}) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	return r.events[min(n, len(r.events)):], r.changed
}

// ServeHTTP answers a list or a watch. A list is always that of the beginning: who
// watches from there on is told the rest. A client that is gone reads no answer, so
// that errors of writing are nobody's.
func (r *resource) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	query := req.URL.Query()
	if watch := query.Get("watch"); watch == "" || watch == "false" || watch == "0" {
		_, _ = w.Write(r.list())
		return
	}
	out := http.NewResponseController(w)
	from := 0
	if query.Get("sendInitialEvents") == "true" {
		r.writeInitial(w)
	} else if version, err := strconv.Atoi(query.Get("resourceVersion")); err == nil {
		from = max(0, version-1)
	}
	for {
		events, changed := r.after(from)
		for _, e := range events {
			_, _ = w.Write(e)
		}
		from += len(events)
		_ = out.Flush()
		select {
		case <-req.Context().Done():
			return
		case <-changed:
		}
	}
}

// writeInitial writes what there was at the beginning as events, and that these
// were all.
func (r *resource) writeInitial(w http.ResponseWriter) {
	for _, item := range r.items {
		_, _ = w.Write([]byte(`{"type":"ADDED","object":` + string(item) + "}\n"))
	}
	bookmark := object{"type": "BOOKMARK", "object": object{"apiVersion": r.version, "kind": r.kind, "metadata": object{
		"resourceVersion": firstVersion, "annotations": object{"k8s.io/initial-events-end": "true"},
	}}}
	_, _ = w.Write(append(bookmark.text(), '\n'))
}

func (r *resource) list() []byte {
	var b strings.Builder
	b.WriteString(`{"apiVersion":"` + r.version + `","kind":"` + r.kind + `List","metadata":{"resourceVersion":"` + firstVersion + `"},"items":[`)
	for i, item := range r.items {
		if i > 0 {
			b.WriteByte(',')
		}
		b.Write(item)
	}
	b.WriteString("]}")
	return []byte(b.String())
}
