package kube

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/streaming"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/headgate/headgate/pkg/source/objects"
)

func (a *api) refuse(w http.ResponseWriter, code int) {
	reason := map[int]metav1.StatusReason{400: metav1.StatusReasonBadRequest, 403: metav1.StatusReasonForbidden, 409: metav1.StatusReasonAlreadyExists, 404: metav1.StatusReasonNotFound, 422: metav1.StatusReasonInvalid}[code]
	w.WriteHeader(code)
	_, _ = w.Write(a.encode(&metav1.Status{Status: "Failure", Code: int32(code), Reason: reason, Message: "no, said the test"}))
}

func (a *api) encode(o runtime.Object) []byte {
	gv := corev1.SchemeGroupVersion
	if _, ok := o.(*eventsv1.Event); ok {
		gv = eventsv1.SchemeGroupVersion
	}
	for _, r := range a.paths {
		if t := fmt.Sprintf("%T", o); t == fmt.Sprintf("%T", r.New()) || t == fmt.Sprintf("%T", r.List()) {
			gv = r.Version
			if !r.Earlier.Empty() && a.beta {
				gv = r.Earlier
			}
		}
	}
	// Encoding writes the version into what it is given, which others read.
	b, err := runtime.Encode(a.codecs.EncoderForVersion(a.info.Serializer, gv), o.DeepCopyObject())
	if err != nil {
		a.tb.Error(err)
	}
	return b
}

type question struct {
	*http.Request
	objects.Kind
	label   labels.Selector
	field   fields.Selector
	version int64
}

func (a *api) ask(r *http.Request, path string) question {
	q := question{Request: r, Kind: a.paths[path]}
	var err error
	if q.label, err = labels.Parse(r.URL.Query().Get("labelSelector")); err != nil {
		a.tb.Error(err)
	}
	if q.field, err = fields.ParseSelector(r.URL.Query().Get("fieldSelector")); err != nil {
		a.tb.Error(err)
	}
	q.version, _ = strconv.ParseInt(r.URL.Query().Get("resourceVersion"), 10, 64)
	return q
}

func (q question) selects(o objects.Object) bool {
	if o == nil {
		return false
	}
	set := fields.Set{"metadata.name": o.GetName()}
	if svc, ok := o.(*corev1.Service); ok {
		set["spec.clusterIP"] = svc.Spec.ClusterIP
	}
	if pod, ok := o.(*corev1.Pod); ok {
		set["spec.nodeName"] = pod.Spec.NodeName
	}
	if at := strings.Split(q.URL.Path, "/"); len(at) > 2 && at[len(at)-3] == "namespaces" && at[len(at)-2] != o.GetNamespace() {
		return false
	}
	return q.label.Matches(labels.Set(o.GetLabels())) && q.field.Matches(set)
}

func (a *api) matching(q question) (found []runtime.Object, version int64) {
	a.with(func() {
		version = a.version
		for _, o := range a.objects[q.Path] {
			if q.selects(o) {
				found = append(found, o)
			}
		}
	})
	return found, version
}

func (a *api) list(w http.ResponseWriter, q question) {
	found, version := a.matching(q)
	list := a.paths[q.Path].List()
	if err := meta.SetList(list, found); err != nil {
		a.tb.Error(err)
	}
	list.(metav1.ListInterface).SetResourceVersion(strconv.FormatInt(version, 10))
	_, _ = w.Write(a.encode(list))
}

func (a *api) watch(w http.ResponseWriter, q question, initial bool) {
	frames := streaming.NewEncoder(a.info.StreamSerializer.NewFrameWriter(w), a.codecs.EncoderForVersion(a.info.StreamSerializer.Serializer, q.Version))
	send := func(t watch.EventType, o runtime.Object) {
		_ = frames.Encode(&metav1.WatchEvent{Type: string(t), Object: runtime.RawExtension{Raw: a.encode(o)}})
	}
	var cut chan struct{}
	a.with(func() { cut = a.cut })
	if initial {
		found, version := a.matching(q)
		for _, o := range found {
			send(watch.Added, o)
		}
		q.version = version
		send(watch.Bookmark, bookmark(q, true))
	}
	for {
		events, changed, expired := a.since(q)
		select {
		case <-cut: // later changes do not reach this stream
			send(watch.Bookmark, bookmark(q, false))
			return
		default:
		}
		if expired {
			send(watch.Error, &metav1.Status{Status: "Failure", Code: http.StatusGone, Reason: metav1.StatusReasonExpired})
			return
		}
		for _, e := range events {
			q.version = e.version
			switch was, is := q.selects(e.old), q.selects(e.new); {
			case was && is:
				send(watch.Modified, e.new)
			case was:
				send(watch.Deleted, e.old)
			case is:
				send(watch.Added, e.new)
			}
		}
		w.(http.Flusher).Flush()
		select {
		case <-changed:
		case <-cut:
		case <-q.Context().Done():
			return
		}
	}
}

func (a *api) since(q question) (events []event, changed chan struct{}, expired bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, e := range a.log[q.Path] {
		if e.version > q.version {
			events = append(events, e)
		}
	}
	return events, a.changed, q.version < a.expired
}

func bookmark(q question, end bool) objects.Object {
	o := q.New()
	o.SetResourceVersion(strconv.FormatInt(q.version, 10))
	if end {
		o.SetAnnotations(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
	}
	return o
}
