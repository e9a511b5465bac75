package manifest

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	sigsjson "sigs.k8s.io/json"

	"github.com/headgate/headgate/pkg/source/convert"
	"github.com/headgate/headgate/pkg/source/objects"
)

// convert decodes an object as what it says it is, and sets its value where it
// is good. A value with problems beside it is to be used without what they speak
// of.
func (d *document) convert(raw []byte, kind objects.Kind, o *object) {
	obj := kind.New()
	if !d.fill(raw, o.ID, obj) {
		return
	}
	obj.SetNamespace(o.Namespace)
	switch obj := obj.(type) {
	case *corev1.Service:
		d.noClusterIP(o.ID, obj)
	case *discoveryv1.EndpointSlice:
		setDefaults(obj)
	}
	e := kind.Read(obj)
	for _, p := range e.Problems {
		d.find(finding{Problem: p})
	}
	o.value, o.bad = e.Value, e.Bad
}

// fill decodes into a Kubernetes type. Fields that it does not have are only
// reported, as the API server does when asked to warn.
func (d *document) fill(raw []byte, id objects.ID, into any) bool {
	strict, err := sigsjson.UnmarshalStrict(raw, into)
	if err != nil {
		d.reject(id, mistyped(raw, err))
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
		d.reject(id, m)
	}
	return true
}

// noClusterIP says that a Service has no address: in a cluster the API server
// gives it one, here nobody does.
func (d *document) noClusterIP(id objects.ID, svc *corev1.Service) {
	_, foreign := svc.Labels[convert.LabelServiceProxyName]
	addressed := svc.Spec.ClusterIP != "" || len(svc.Spec.ClusterIPs) > 0
	if foreign || addressed || svc.Spec.Type == corev1.ServiceTypeExternalName {
		return
	}
	d.reject(id, mistake{"spec.clusterIP", "", "is missing, and files get none assigned: the Service has no effect",
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
