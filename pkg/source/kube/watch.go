package kube

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/headgate/headgate/pkg/source/objects"
)

// watcher lists and watches the objects of one kind.
type watcher struct {
	objects.Kind
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
	opts.LabelSelector = w.Labels
	if w.Fields != nil {
		opts.FieldSelector = w.Fields.String()
	}
	return w.client.Get().Resource(w.Path).VersionedParams(&opts, w.codec)
}

func (w *watcher) fetch(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	list, err := w.ask(ctx, opts)
	if err == nil {
		w.contact.heard()
		return list, nil
	}
	w.fail(ctx, err)
	if apierrors.IsForbidden(err) || apierrors.IsNotFound(err) {
		w.refused(w.Name, err)
	}
	if apierrors.IsNotFound(err) {
		w.notice("the API server has no " + w.Path + " (" + w.Version.Group + "): going on without")
		// It may come with an upgrade of the server, not before.
		<-w.pauses.in(ctx).After(w.pause)
	}
	return list, err
}

// ask asks for a list, in the words that the server understands. A kind that it
// does not have under one version it may have under the other, now or after an
// upgrade.
func (w *watcher) ask(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	all := &list{}
	err := w.request(opts).Do(ctx).Into(all)
	switch {
	case apierrors.IsNotFound(err) && w.older != nil:
		w.client, w.older = w.older, w.client
		all = &list{}
		if err = w.request(opts).Do(ctx).Into(all); err == nil {
			w.notice("the API server has " + w.Path + " as " + w.client.APIVersion().String())
		}
	case apierrors.IsBadRequest(err) && w.OptionalFields && w.Fields != nil:
		// What it would leave out the conversion leaves out, too.
		w.notice("the API server cannot select " + w.Path + " by " + w.Fields.String() + ": all are watched")
		w.Fields = nil
		all = &list{}
		err = w.request(opts).Do(ctx).Into(all)
	}
	return all, err
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
		&object{}, store, cache.ReflectorOptions{
			Logger:  &klog.Logger{},
			Name:    w.Name,
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
