package kube

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/source/objects"
)

// eventKind is written only.
const eventKind = "Event"

// What events say of where they come from.
const (
	eventController = "headgate.dev/agent"
	eventReason     = "CannotProgram"
	eventAction     = "Program"
)

// What the API server takes at most, in bytes.
const (
	longestNote     = 1024
	longestInstance = 128
)

// eventName is the name of an event; zero for none.
type eventName = objects.Key

// nodeEvents is the namespace of events on objects that are in none.
const nodeEvents = metav1.NamespaceDefault

// subjectOf returns the object that a problem is about, where it is a Service,
// one of its slices, or the Node.
func subjectOf(p lb.Problem) (objects.ID, bool) {
	kind, rest, _ := strings.Cut(p.Object, " ")
	if kind == objects.NodeKind {
		return objects.ID{Kind: kind, Key: objects.Key{Name: rest}}, rest != ""
	}
	namespace, object, ok := strings.Cut(rest, "/")
	return objects.ID{Kind: kind, Key: objects.Key{Namespace: namespace, Name: object}}, ok && (kind == objects.ServiceKind || kind == objects.SliceKind)
}

// apiRecorder writes events to the API server (events.k8s.io/v1). What it needs
// to know of a Service beside its name it asks for when there is something to
// tell: that is seldom, and keeping it for all would cost memory.
type apiRecorder struct {
	node                              string
	core, discovery, creator, patcher rest.Interface
	codec                             runtime.ParameterCodec
}

// recorder returns what writes events. Each client has a limit of its own, so
// that no event waits for a list, or keeps one waiting.
func (c *connection) recorder(node string) (*apiRecorder, error) {
	r := &apiRecorder{node: node, codec: runtime.NewParameterCodec(c.scheme)}
	for _, one := range []struct {
		client *rest.Interface
		gv     schema.GroupVersion
	}{
		{&r.core, corev1.SchemeGroupVersion}, {&r.discovery, discoveryv1.SchemeGroupVersion},
		{&r.creator, eventsv1.SchemeGroupVersion}, {&r.patcher, eventsv1.SchemeGroupVersion},
	} {
		var err error
		if *one.client, err = c.client(one.gv, c.codecs); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// create implements recorder.
func (r *apiRecorder) create(ctx context.Context, p lb.Problem) (at eventName, ours bool, err error) {
	about, _ := subjectOf(p)
	regarding, err := r.regarding(ctx, about)
	if err != nil || regarding.Name == "" {
		return eventName{}, false, err
	}
	e := r.event(regarding, about, p)
	err = r.creator.Post().Namespace(e.Namespace).Resource("events").Body(e).Do(ctx).Error()
	at = eventName{Namespace: e.Namespace, Name: e.Name}
	if apierrors.IsAlreadyExists(err) {
		return at, false, nil
	}
	return at, err == nil, err
}

// repeat implements recorder.
func (r *apiRecorder) repeat(ctx context.Context, at eventName, count int32) error {
	series := eventsv1.EventSeries{Count: count, LastObservedTime: metav1.NowMicro()}
	patch, err := json.Marshal(map[string]any{"series": series})
	if err != nil {
		return err
	}
	return r.patcher.Patch(types.MergePatchType).Namespace(at.Namespace).Resource("events").Name(at.Name).Body(patch).Do(ctx).Error()
}

// event returns the event of a problem.
func (r *apiRecorder) event(regarding corev1.ObjectReference, about objects.ID, p lb.Problem) *eventsv1.Event {
	note := shortened(p.Error(), longestNote)
	sum := sha256.Sum256([]byte(string(regarding.UID) + " " + note))
	e := &eventsv1.Event{
		ObjectMeta:          metav1.ObjectMeta{Namespace: cmp.Or(regarding.Namespace, nodeEvents), Name: regarding.Name + "." + hex.EncodeToString(sum[:8])},
		EventTime:           metav1.NewMicroTime(time.Now()),
		ReportingController: eventController,
		ReportingInstance:   shortened("headgate-"+r.node, longestInstance),
		Action:              eventAction,
		Reason:              eventReason,
		Type:                corev1.EventTypeWarning,
		Note:                note,
		Regarding:           regarding,
	}
	if about.Kind == objects.SliceKind {
		e.Related = &corev1.ObjectReference{APIVersion: discoveryv1.SchemeGroupVersion.String(), Kind: objects.SliceKind,
			Namespace: about.Namespace, Name: about.Name}
	}
	return e
}

// regarding returns the object that the event of a subject is on: the Service, or
// the Node. Its name is empty where the Service is gone.
func (r *apiRecorder) regarding(ctx context.Context, about objects.ID) (corev1.ObjectReference, error) {
	if about.Kind == objects.NodeKind {
		// Kubelets, too, have the name in place of the UID; kubectl looks for it.
		return corev1.ObjectReference{APIVersion: "v1", Kind: objects.NodeKind, Name: about.Name, UID: types.UID(about.Name)}, nil
	}
	service, err := r.owner(ctx, about)
	if err != nil || service.Name == "" {
		return corev1.ObjectReference{}, err
	}
	svc, err := r.service(ctx, service)
	if err != nil || svc == nil {
		return corev1.ObjectReference{}, err
	}
	return corev1.ObjectReference{APIVersion: "v1", Kind: objects.ServiceKind, Namespace: svc.Namespace, Name: svc.Name,
		UID: svc.UID, ResourceVersion: svc.ResourceVersion}, nil
}

// owner returns the Service that an object is of, the zero name where it has
// none, or is gone.
func (r *apiRecorder) owner(ctx context.Context, about objects.ID) (objects.Key, error) {
	if about.Kind == objects.ServiceKind {
		return about.Key, nil
	}
	list := &discoveryv1.EndpointSliceList{}
	if err := r.find(ctx, r.discovery, "endpointslices", about.Key, list); err != nil || len(list.Items) == 0 {
		return objects.Key{}, err
	}
	return objects.Key{Namespace: about.Namespace, Name: list.Items[0].Labels[discoveryv1.LabelServiceName]}, nil
}

// service returns a Service, nil where it is gone.
func (r *apiRecorder) service(ctx context.Context, n objects.Key) (*corev1.Service, error) {
	list := &corev1.ServiceList{}
	if err := r.find(ctx, r.core, "services", n, list); err != nil || len(list.Items) == 0 {
		return nil, err
	}
	return &list.Items[0], nil
}

// find asks for one object as for a list: that is all that we may do.
func (r *apiRecorder) find(ctx context.Context, client rest.Interface, path string, n objects.Key, list runtime.Object) error {
	opts := metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("metadata.name", n.Name).String(), ResourceVersion: "0"}
	err := client.Get().Namespace(n.Namespace).Resource(path).VersionedParams(&opts, r.codec).Do(ctx).Into(list)
	if err != nil {
		return fmt.Errorf("find %s in %s: %w", n.Name, path, err)
	}
	return nil
}

// shortened returns text that is no longer than most, in bytes.
func shortened(text string, most int) string {
	const more = "…"
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most-len(more)], "") + more
}
