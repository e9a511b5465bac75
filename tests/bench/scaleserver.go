package main

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
)

// apiServer is as much of an API server as the agent and kube-proxy ask for: streams of a few
// kinds, in protobuf, which begin with all that there is. Objects are encoded once, before
// anything is measured, and nothing is written by clients.
type apiServer struct {
	addr   string
	server *http.Server
	nodes, services,
	slices *collection
}

// collection is the objects of a kind, and what became of them.
type collection struct {
	kind schema.GroupVersionKind

	mutex   sync.Mutex
	objects map[string][]byte // as they are sent, by name
	events  []*event          // event i has the version i+2
	changed chan struct{}     // closed when there are more
}

// event is a change of an object.
type event struct {
	frame []byte
	sent  atomic.Int64 // when it was first handed to a client, by clock; 0 before
}

// apiObject is an object of the API that can be written as protobuf.
type apiObject interface {
	metav1.Object
	Marshal() ([]byte, error)
}

func newCollection(gv schema.GroupVersion, kind string) *collection {
	return &collection{kind: gv.WithKind(kind), objects: map[string][]byte{}, changed: make(chan struct{})}
}

// newAPIServer serves on a listener, which it takes over. It has nothing yet.
func newAPIServer(l net.Listener) *apiServer {
	a := &apiServer{
		addr: l.Addr().String(), nodes: newCollection(corev1.SchemeGroupVersion, "Node"),
		services: newCollection(corev1.SchemeGroupVersion, "Service"), slices: newCollection(discoveryv1.SchemeGroupVersion, "EndpointSlice"),
	}
	mux := http.NewServeMux()
	mux.Handle("GET /api/v1/nodes", a.nodes)
	mux.Handle("GET /api/v1/services", a.services)
	mux.Handle("GET /apis/discovery.k8s.io/v1/endpointslices", a.slices)
	mux.Handle("GET /apis/networking.k8s.io/v1/servicecidrs", newCollection(networkingv1.SchemeGroupVersion, "ServiceCIDR"))
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		refuse(w, metav1.StatusReasonNotFound, http.StatusNotFound)
	})
	a.server = &http.Server{Handler: mux}
	go func() { _ = a.server.Serve(l) }() // it ends when it is closed
	return a
}

func (a *apiServer) close() error { return a.server.Close() }

// load adds an object that is there from the beginning.
func (c *collection) load(o apiObject) error {
	o.SetResourceVersion("1")
	text, err := c.encode(o)
	c.objects[o.GetName()] = text
	return err
}

// change tells of an object that was added, modified or deleted.
func (c *collection) change(kind watch.EventType, o apiObject) (*event, error) {
	n, err := c.encodeNews(kind, o, 0)
	if err == nil {
		c.tell(n)
	}
	return n.event, err
}

// news is a change that is encoded, and not told yet.
type news struct {
	*event
	name string
	text []byte // nil where the object is deleted
}

// encodeNews encodes a change that is told after so many others.
func (c *collection) encodeNews(kind watch.EventType, o apiObject, after int) (n news, err error) {
	c.mutex.Lock()
	o.SetResourceVersion(strconv.Itoa(len(c.events) + after + 2))
	c.mutex.Unlock()
	text, err := c.encode(o)
	if err != nil {
		return n, err
	}
	n = news{event: &event{}, name: o.GetName(), text: text}
	n.frame, err = frame(kind, text)
	if kind == watch.Deleted {
		n.text = nil
	}
	return n, err
}

// tell tells of changes, at once.
func (c *collection) tell(all ...news) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	for _, n := range all {
		if c.objects[n.name] = n.text; n.text == nil {
			delete(c.objects, n.name)
		}
		c.events = append(c.events, n.event)
	}
	close(c.changed)
	c.changed = make(chan struct{})
}

// encode returns an object as protobuf with its kind.
func (c *collection) encode(o interface{ Marshal() ([]byte, error) }) ([]byte, error) {
	raw, err := o.Marshal()
	if err != nil {
		return nil, err
	}
	version, kind := c.kind.ToAPIVersionAndKind()
	text, err := (&runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: version, Kind: kind}, Raw: raw}).Marshal()
	return append([]byte("k8s\x00"), text...), err
}

// frame returns an event as a stream has it.
func frame(kind watch.EventType, object []byte) ([]byte, error) {
	text, err := (&metav1.WatchEvent{Type: string(kind), Object: runtime.RawExtension{Raw: object}}).Marshal()
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(text))), text...), err
}

// state returns all objects, and after which event they are so.
func (c *collection) state() (objects [][]byte, events int) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	for _, text := range c.objects {
		objects = append(objects, text)
	}
	return objects, len(c.events)
}

// after returns the events behind the first n, and what is closed when there are more.
func (c *collection) after(n int) ([]*event, chan struct{}) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	return c.events[min(n, len(c.events)):], c.changed
}

// ServeHTTP answers a stream. Lists are refused: clients ask for a stream first. A client
// that is gone reads no answer, so that errors of writing do not matter.
func (c *collection) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	query, from := req.URL.Query(), 0
	version, _ := strconv.Atoi(query.Get("resourceVersion"))
	switch {
	case query.Get("watch") == "":
		refuse(w, metav1.StatusReasonMethodNotAllowed, http.StatusMethodNotAllowed)
		return
	case query.Get("sendInitialEvents") == "true":
		w.Header().Set("Content-Type", runtime.ContentTypeProtobuf+";stream=watch")
		from = c.writeState(w)
	default:
		w.Header().Set("Content-Type", runtime.ContentTypeProtobuf+";stream=watch")
		from = max(0, version-1)
	}
	for out := http.NewResponseController(w); ; {
		events, changed := c.after(from)
		for _, e := range events {
			e.sent.CompareAndSwap(0, clock())
			_, _ = w.Write(e.frame)
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

// writeState writes all objects and that these are all, and returns after which event they
// are so.
func (c *collection) writeState(w http.ResponseWriter) int {
	objects, events := c.state()
	for _, text := range objects {
		if f, err := frame(watch.Added, text); err == nil {
			_, _ = w.Write(f)
		}
	}
	end := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		ResourceVersion: strconv.Itoa(events + 1), Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"},
	}}
	// Every object has its metadata in the same field.
	if text, err := c.encode(end); err == nil {
		if f, err := frame(watch.Bookmark, text); err == nil {
			_, _ = w.Write(f)
		}
	}
	return events
}

// refuse answers with a Status.
func refuse(w http.ResponseWriter, reason metav1.StatusReason, code int) {
	w.Header().Set("Content-Type", runtime.ContentTypeJSON)
	w.WriteHeader(code)
	fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":%q,"code":%d}`, reason, code)
}
