package main

import (
	"context"
	"fmt"
	"os"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// decodeVar makes this program one that receives every Service and EndpointSlice,
// decodes them and ends: what no client can do without. Its value is the path of
// a kubeconfig.
const decodeVar = "HEADGATE_BENCH_DECODE"

// followVar has it go on, and drop what changes.
const followVar = "HEADGATE_BENCH_FOLLOW"

// decodeAll streams both kinds side by side and drops what comes.
func decodeAll(ctx context.Context, kubeconfig string) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	config.AcceptContentTypes, config.QPS = runtime.ContentTypeProtobuf, -1
	group, ctx := errgroup.WithContext(ctx)
	for _, kind := range []struct {
		gv   schema.GroupVersion
		path string
	}{{corev1.SchemeGroupVersion, "services"}, {discoveryv1.SchemeGroupVersion, "endpointslices"}} {
		group.Go(func() error { return decodeKind(ctx, config, kind.gv, kind.path) })
	}
	return group.Wait()
}

func decodeKind(ctx context.Context, base *rest.Config, gv schema.GroupVersion, path string) error {
	scheme := runtime.NewScheme()
	scheme.AddKnownTypes(corev1.SchemeGroupVersion, &corev1.Service{})
	scheme.AddKnownTypes(discoveryv1.SchemeGroupVersion, &discoveryv1.EndpointSlice{})
	metav1.AddToGroupVersion(scheme, gv)
	config := rest.CopyConfig(base)
	config.GroupVersion, config.APIPath = &gv, "/apis"
	if gv.Group == "" {
		config.APIPath = "/api"
	}
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	client, err := rest.RESTClientFor(config)
	if err != nil {
		return err
	}
	stream, err := client.Get().Resource(path).VersionedParams(&metav1.ListOptions{
		Watch: true, AllowWatchBookmarks: true, SendInitialEvents: new(true), ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
	}, runtime.NewParameterCodec(scheme)).Watch(ctx)
	if err != nil {
		return err
	}
	defer stream.Stop()
	for event := range stream.ResultChan() {
		if object, ok := event.Object.(metav1.Object); ok && event.Type == watch.Bookmark && object.GetAnnotations()[metav1.InitialEventsAnnotationKey] != "" {
			if os.Getenv(followVar) == "" {
				return nil
			}
			fmt.Printf("\tknows all %s\n", path)
		}
	}
	return fmt.Errorf("the stream of %s ended", path)
}
