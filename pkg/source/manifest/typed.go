package manifest

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	sigsjson "sigs.k8s.io/json"

	"github.com/headgate/headgate/pkg/source/convert"
)

// convert decodes an object as what it says it is, and sets its value where it
// is good. A value with problems beside it is to be used without what they speak
// of.
func (dec decoder) convert(d *document, raw []byte, o *object) {
	var err error
	switch o.key.kind {
	case serviceKind:
		svc := &corev1.Service{}
		if !d.fill(raw, o, svc) {
			return
		}
		svc.Namespace = o.key.namespace
		d.noClusterIP(o.key, svc)
		o.value.service, err = dec.opts.Service(svc)
	case sliceKind:
		slice := &discoveryv1.EndpointSlice{}
		if !d.fill(raw, o, slice) {
			return
		}
		slice.Namespace = o.key.namespace
		setDefaults(slice)
		o.value.slice, err = convert.Slice(slice)
	case nodeKind:
		node := &corev1.Node{}
		if !d.fill(raw, o, node) {
			return
		}
		o.value.node, err = convert.Node(node)
	case podKind:
		pod := &corev1.Pod{}
		if !d.fill(raw, o, pod) {
			return
		}
		pod.Namespace = o.key.namespace
		if pod.Spec.NodeName == dec.node {
			o.value.pod, err = dec.opts.Pod(pod)
		}
	}
	for _, p := range convert.Problems(err) {
		d.findings = append(d.findings, finding{Problem: p})
	}
	o.bad = err != nil && o.value == (value{})
}

// fill decodes into a Kubernetes type. Fields that it does not have are only
// reported, as the API server does when asked to warn.
func (d *document) fill(raw []byte, o *object, into any) bool {
	strict, err := sigsjson.UnmarshalStrict(raw, into)
	if err != nil {
		d.reject(o.key, mistyped(raw, err))
		return false
	}
	for _, err := range strict {
		m := mistake{reason: err.Error(), remedy: "correct its spelling or remove it"}
		if f, ok := err.(sigsjson.FieldError); ok {
			m.field, m.reason = f.FieldPath(), "is not a known field, and has no effect"
		}
		if strings.HasPrefix(err.Error(), "duplicate") {
			m.reason, m.remedy = "is there twice, the last one counts", "remove one of them"
		}
		d.reject(o.key, m)
	}
	return true
}

// noClusterIP says that a Service has no address: in a cluster the API server
// gives it one, here nobody does.
func (d *document) noClusterIP(k key, svc *corev1.Service) {
	_, foreign := svc.Labels[convert.LabelServiceProxyName]
	addressed := svc.Spec.ClusterIP != "" || len(svc.Spec.ClusterIPs) > 0
	if foreign || addressed || svc.Spec.Type == corev1.ServiceTypeExternalName {
		return
	}
	d.reject(k, mistake{"spec.clusterIP", "", "is missing, and nobody assigns one to files: the Service has no effect",
		"write an address, or None for a headless Service"})
}

// setDefaults does what the API server does to a slice on its way in: a port
// without a name has the empty one (SetDefaults_EndpointPort).
func setDefaults(slice *discoveryv1.EndpointSlice) {
	for i := range slice.Ports {
		if slice.Ports[i].Name == nil {
			slice.Ports[i].Name = new(string)
		}
	}
}
