package kube

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/headgate/headgate/pkg/source/convert"
)

// resource is something to be watched: what, and which of it.
type resource struct {
	kind   string
	gv     schema.GroupVersion
	path   string
	object runtime.Object // an example
	list   func() runtime.Object
	labels string
	fields fields.Selector
	// optional says that the field selector saves work, and no more.
	optional bool
	earlier  schema.GroupVersion // where servers before had it, zero for nowhere
}

// betaServiceCIDR is where ServiceCIDRs are from Kubernetes 1.31 on; they are
// laid out as in version 1, which comes with 1.33.
var betaServiceCIDR = schema.GroupVersion{Group: networkingv1.GroupName, Version: "v1beta1"}

// resources returns what a node watches, with the selectors of kube-proxy. The
// field of Services can be selected from Kubernetes 1.31 on.
func resources(node string) []resource {
	return []resource{
		{kind: serviceKind, gv: corev1.SchemeGroupVersion, path: "services",
			object: &corev1.Service{}, list: func() runtime.Object { return &corev1.ServiceList{} },
			labels: "!" + convert.LabelServiceProxyName,
			fields: fields.OneTermNotEqualSelector("spec.clusterIP", corev1.ClusterIPNone), optional: true},
		{kind: sliceKind, gv: discoveryv1.SchemeGroupVersion, path: "endpointslices",
			object: &discoveryv1.EndpointSlice{}, list: func() runtime.Object { return &discoveryv1.EndpointSliceList{} },
			labels: "!" + corev1.IsHeadlessService, fields: fields.Everything()},
		{kind: nodeKind, gv: corev1.SchemeGroupVersion, path: "nodes",
			object: &corev1.Node{}, list: func() runtime.Object { return &corev1.NodeList{} },
			fields: fields.OneTermEqualSelector("metadata.name", node)},
		{kind: cidrKind, gv: networkingv1.SchemeGroupVersion, path: "servicecidrs",
			object: &networkingv1.ServiceCIDR{}, list: func() runtime.Object { return &networkingv1.ServiceCIDRList{} },
			fields: fields.Everything(), earlier: betaServiceCIDR},
	}
}

// podsOf is the Pods of a node.
func podsOf(node string) resource {
	return resource{kind: podKind, gv: corev1.SchemeGroupVersion, path: "pods",
		object: &corev1.Pod{}, list: func() runtime.Object { return &corev1.PodList{} },
		fields: fields.OneTermEqualSelector("spec.nodeName", node)}
}

// watcher lists and watches one resource.
type watcher struct {
	resource
	client  rest.Interface
	older   rest.Interface // of an older version of the resource, nil where there is none
	codec   runtime.ParameterCodec
	contact *contact
	refused func(kind string, err error) // the server answered that it will not say
	notice  func(string)                 // is told what the server lacks
	pauses  *pauses
	pause   time.Duration // before a resource that does not exist is asked for again
}

// request returns a request for the resource.
func (w *watcher) request(opts metav1.ListOptions) *rest.Request {
	opts.LabelSelector, opts.FieldSelector = w.labels, w.fields.String()
	return w.client.Get().Resource(w.path).VersionedParams(&opts, w.codec)
}

func (w *watcher) fetch(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	list, err := w.ask(ctx, opts)
	if err == nil {
		w.contact.heard()
		return list, nil
	}
	w.fail(ctx, err)
	if apierrors.IsForbidden(err) || apierrors.IsNotFound(err) {
		w.refused(w.kind, err)
	}
	if apierrors.IsNotFound(err) {
		w.notice("the API server has no " + w.path + " (" + w.gv.Group + "): going on without")
		// It may come with an upgrade of the server, not before.
		<-w.pauses.in(ctx).After(w.pause)
	}
	return list, err
}

// ask asks for a list, in the words that the server understands. A kind that it
// does not have under one version it may have under the other, now or after an
// upgrade.
func (w *watcher) ask(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	list := w.list()
	err := w.request(opts).Do(ctx).Into(list)
	switch {
	case apierrors.IsNotFound(err) && w.older != nil:
		w.client, w.older = w.older, w.client
		list = w.list()
		if err = w.request(opts).Do(ctx).Into(list); err == nil {
			w.notice("the API server has " + w.path + " as " + w.client.APIVersion().String())
		}
	case apierrors.IsBadRequest(err) && w.optional && !w.fields.Empty():
		// What it would leave out the conversion leaves out, too.
		w.notice("the API server cannot select " + w.path + " by " + w.fields.String() + ": all are watched")
		w.fields = fields.Everything()
		list = w.list()
		err = w.request(opts).Do(ctx).Into(list)
	}
	return list, err
}

func (w *watcher) watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	opts.Watch = true
	stream, err := w.request(opts).Watch(ctx)
	if err != nil {
		w.fail(ctx, err)
		return nil, err
	}
	return w.contact.follow(stream), nil
}

// fail notes an error, unless we are ending.
func (w *watcher) fail(ctx context.Context, err error) {
	if ctx.Err() == nil {
		w.contact.failed(err)
	}
}

// reflect keeps a store up to date until the context ends.
func (w *watcher) reflect(ctx context.Context, store cache.ReflectorStore, backoff wait.Backoff) {
	r := cache.NewReflectorWithOptions(
		&cache.ListWatch{ListWithContextFunc: w.fetch, WatchFuncWithContext: w.watch},
		w.object, store, cache.ReflectorOptions{
			Logger:  &klog.Logger{},
			Name:    w.kind,
			Clock:   w.pauses.in(ctx),
			Backoff: &backoff,
		})
	r.RunWithContext(ctx)
}

// defaultBackoff is how long to wait before trying again. All nodes of a
// cluster lose their server in the same moment: the jitter, up to as much again,
// is what they do not come back in.
func defaultBackoff() wait.Backoff {
	return wait.Backoff{Duration: 800 * time.Millisecond, Factor: 2, Jitter: 1, Steps: 10, Cap: 30 * time.Second}
}
