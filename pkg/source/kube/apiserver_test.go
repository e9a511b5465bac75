package kube

import (
	"fmt"
	"net"
	"net/http"
	"path"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"

	"github.com/headgate/headgate/pkg/source/convert"
	"github.com/headgate/headgate/pkg/source/objects"
)

// event is a change of an object; old or new may be nil.
type event struct {
	version  int64
	old, new objects.Object
}

// api is an API server as far as reflectors see one: lists, watches, streams in
// place of lists, selectors, expiry. It speaks protobuf over real connections.
type api struct {
	tb     testing.TB
	addr   string
	info   runtime.SerializerInfo
	codecs serializer.CodecFactory
	paths  map[string]objects.Kind

	mu        sync.Mutex
	server    *http.Server
	version   int64
	expired   int64 // changes up to here are forgotten
	objects   map[string]map[objects.Key]objects.Object
	log       map[string][]event
	changed   chan struct{} // closed at the next change
	cut       chan struct{} // closed when all streams are to end
	listsOnly bool          // no streams in place of lists
	noWatch   bool          // nor watches
	noFields  bool          // Services cannot be selected by fields
	beta      bool          // ServiceCIDRs are v1beta1
	refusals  map[string]int
	holds     map[string]chan struct{}
	asked     []string               // requests, such as "list services"
	arrived   map[string][]time.Time // when, by request
	agent     string                 // as the last request said
	accept    string
	selectors map[string]string // as last asked, by path
	events    map[objects.Key]*eventsv1.Event
}

func mustServe(tb testing.TB) *api {
	tb.Helper()
	codecs := serializer.NewCodecFactory(newScheme())
	info, ok := runtime.SerializerInfoForMediaType(codecs.SupportedMediaTypes(), runtime.ContentTypeProtobuf)
	if !ok {
		tb.Fatal("no protobuf")
	}
	a := &api{tb: tb, addr: "127.0.0.1:0", info: info, codecs: codecs, version: 100,
		paths: map[string]objects.Kind{}, objects: map[string]map[objects.Key]objects.Object{}, log: map[string][]event{},
		changed: make(chan struct{}), cut: make(chan struct{}),
		refusals: map[string]int{}, holds: map[string]chan struct{}{}, selectors: map[string]string{}, events: map[objects.Key]*eventsv1.Event{}}
	for _, r := range objects.Kinds("", convert.Options{}, true) {
		a.paths[r.Path] = r
		a.objects[r.Path] = map[objects.Key]objects.Object{}
	}
	a.start()
	tb.Cleanup(a.stop)
	return a
}

func (a *api) start() {
	a.tb.Helper()
	l, err := net.Listen("tcp", a.addr)
	if err != nil {
		a.tb.Fatal(err)
	}
	a.addr = l.Addr().String()
	a.server = &http.Server{Handler: a}
	go func(s *http.Server) { _ = s.Serve(l) }(a.server)
}

// stop closes the port and all connections.
func (a *api) stop() { _ = a.server.Close() }

// with alters the server, alone.
func (a *api) with(alter func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	alter()
}

func (a *api) pathOf(o objects.Object) string {
	for p, r := range a.paths {
		if fmt.Sprintf("%T", r.New()) == fmt.Sprintf("%T", o) {
			return p
		}
	}
	a.tb.Fatalf("%T is not served", o)
	return ""
}

func (a *api) put(all ...objects.Object) {
	a.with(func() {
		for _, o := range all {
			o = o.DeepCopyObject().(objects.Object)
			a.version++
			o.SetResourceVersion(strconv.FormatInt(a.version, 10))
			p, n := a.pathOf(o), objects.KeyOf(o)
			a.log[p] = append(a.log[p], event{a.version, a.objects[p][n], o})
			a.objects[p][n] = o
		}
		a.wake()
	})
}

func (a *api) remove(all ...objects.Object) {
	a.with(func() {
		for _, o := range all {
			p, n := a.pathOf(o), objects.KeyOf(o)
			a.version++
			last := a.objects[p][n].DeepCopyObject().(objects.Object)
			last.SetResourceVersion(strconv.FormatInt(a.version, 10))
			a.log[p] = append(a.log[p], event{a.version, last, nil})
			delete(a.objects[p], n)
		}
		a.wake()
	})
}

func (a *api) wake() {
	close(a.changed)
	a.changed = make(chan struct{})
}

// hangUp ends all streams, as the server does after some minutes.
func (a *api) hangUp() {
	a.with(func() {
		close(a.cut)
		a.cut = make(chan struct{})
	})
}

// forget makes all that happened so far too old to be asked for.
func (a *api) forget() { a.with(func() { a.expired = a.version }) }

// hold makes requests for something wait until the function is called.
func (a *api) hold(path string) (release func()) {
	c := make(chan struct{})
	a.with(func() { a.holds[path] = c })
	return func() {
		a.with(func() { delete(a.holds, path) })
		close(c)
	}
}

// count returns how often something was asked.
func (a *api) count(what string) (n int) {
	a.with(func() {
		for _, asked := range a.asked {
			if asked == what {
				n++
			}
		}
	})
	return n
}

// ServeHTTP is that of http.Handler.
func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p, q := path.Base(r.URL.Path), r.URL.Query()
	verb := "list"
	if !strings.HasPrefix(r.URL.Path, "/api") {
		a.tb.Errorf("asked for %s", r.URL)
	}
	switch {
	case q.Get("sendInitialEvents") == "true":
		verb = "stream"
	case q.Get("watch") != "":
		verb = "watch"
	case r.Method != http.MethodGet:
		verb = strings.ToLower(r.Method)
		if verb == "patch" {
			p = path.Base(path.Dir(r.URL.Path))
		}
	}
	a.mu.Lock()
	a.asked = append(a.asked, verb+" "+p)
	if a.arrived == nil {
		a.arrived = map[string][]time.Time{}
	}
	a.arrived[verb+" "+p] = append(a.arrived[verb+" "+p], time.Now())
	a.agent, a.accept, a.selectors[p] = r.UserAgent(), r.Header.Get("Accept"), q.Get("labelSelector")+" "+q.Get("fieldSelector")
	held, refusal, listsOnly, noWatch := a.holds[p], max(a.refusals[p], a.refusals[strings.TrimPrefix(r.URL.Path, "/apis/")]), a.listsOnly, a.noWatch
	if a.noFields && strings.Contains(q.Get("fieldSelector"), "clusterIP") {
		refusal = http.StatusBadRequest
	}
	a.mu.Unlock()
	if held != nil {
		select {
		case <-held:
		case <-r.Context().Done():
			return
		}
	}
	w.Header().Set("Content-Type", runtime.ContentTypeProtobuf)
	switch {
	case refusal != 0:
		a.refuse(w, refusal)
	case r.Method != http.MethodGet:
		a.writeEvent(w, r)
	case verb == "watch" && noWatch:
		a.refuse(w, http.StatusForbidden)
	case verb == "stream" && listsOnly:
		a.refuse(w, http.StatusUnprocessableEntity)
	case verb == "list":
		a.list(w, a.ask(r, p))
	default:
		w.Header().Set("Content-Type", runtime.ContentTypeProtobuf+";stream=watch")
		a.watch(w, a.ask(r, p), verb == "stream")
	}
}

// question is what a client wants to know.
// selects says whether an object, nil for none, is among those asked for.
// matching returns all objects asked for.
// watch sends changes as they happen, after everything there is where the stream
// stands in for a list.
// since returns what happened after the version of a question.
// bookmark says how far a stream is, and whether that is the end of the list.
// eventually waits until something holds.
func eventually(tb testing.TB, what string, holds func() bool) {
	tb.Helper()
	for late := time.Now().Add(20 * time.Second); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(late) {
			tb.Fatalf("never came: %s", what)
		}
	}
}

// lines returns text without indentation, for what must be compared as a whole.
func lines(ss ...string) string { return strings.Join(ss, "\n") }
