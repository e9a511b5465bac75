package protobuf_test

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"sigs.k8s.io/randfill"

	"github.com/headgate/headgate/pkg/source/convert"
	"github.com/headgate/headgate/pkg/source/objects"
	reader "github.com/headgate/headgate/pkg/source/protobuf"
)

// kinds are those that are read: Services and EndpointSlices.
var kinds = objects.Kinds("node-a", convert.Options{}, false)[:2]

func gvk(k objects.Kind) schema.GroupVersionKind { return k.Version.WithKind(k.Name) }

// api is the encoder and the decoder of the API.
var api = func() *protobuf.Serializer {
	s := runtime.NewScheme()
	for _, k := range kinds {
		s.AddKnownTypes(k.Version, k.New(), k.List())
	}
	return protobuf.NewSerializer(s, s)
}()

// mustEncode returns an object or a list as an API server writes it.
func mustEncode(tb testing.TB, k schema.GroupVersionKind, o runtime.Object) []byte {
	tb.Helper()
	o.GetObjectKind().SetGroupVersionKind(k)
	data, err := runtime.Encode(api, o)
	if err != nil {
		tb.Fatal(err)
	}
	return data
}

// mustEncodeList returns a list of objects of a kind as an API server writes it.
func mustEncodeList(tb testing.TB, k objects.Kind, all ...objects.Object) []byte {
	tb.Helper()
	list := k.List()
	items := make([]runtime.Object, len(all))
	for i, o := range all {
		items[i] = o
	}
	if err := meta.SetList(list, items); err != nil {
		tb.Fatal(err)
	}
	list.(metav1.ListMetaAccessor).GetListMeta().SetResourceVersion("7")
	list.(metav1.ListMetaAccessor).GetListMeta().SetContinue("more")
	return mustEncode(tb, k.Version.WithKind(k.Name+"List"), list)
}

// seen is all that anyone looks at of an object.
type seen struct {
	objects.Entry
	version, end string
}

func see(k objects.Kind, o objects.Object) seen {
	return seen{*k.Read(o), o.GetResourceVersion(), o.GetAnnotations()[metav1.InitialEventsAnnotationKey]}
}

// mustAgree reads data with a reader, and fails unless the decoder of the API reads the
// same or the reader leaves the data to it. It says whether the reader left it.
func mustAgree(tb testing.TB, r *reader.Reader, k objects.Kind, data []byte) (left bool) {
	tb.Helper()
	want, _, err := api.Decode(data, nil, nil)
	scratch := append([]byte(nil), data...)
	var got []seen
	m := r.List(scratch, func(o reader.Object) { got = append(got, see(k, o)) })
	if m == nil {
		o := r.Object(scratch)
		if o == nil {
			return true
		}
		got = []seen{see(k, o)}
	}
	clear(scratch) // whoever still looks at it sees something else
	if err != nil {
		tb.Fatalf("read %+v, where the API has %v", got, err)
	}
	var all []seen
	if m != nil {
		if wm := *want.(metav1.ListMetaAccessor).GetListMeta().(*metav1.ListMeta); !reflect.DeepEqual(*m, wm) {
			tb.Fatalf("metadata %+v, want %+v", *m, wm)
		}
		_ = meta.EachListItem(want, func(o runtime.Object) error { all = append(all, see(k, o.(objects.Object))); return nil })
	} else {
		all = []seen{see(k, want.(objects.Object))}
	}
	if !reflect.DeepEqual(got, all) {
		tb.Fatalf("read\n%s\nwant\n%s", show(got), show(all))
	}
	return false
}

func show(all []seen) (s string) {
	for _, one := range all {
		s += fmt.Sprintf("%+v %+v\n", one, reflect.Indirect(reflect.ValueOf(one.Value)))
	}
	return s
}

// random fills in objects, all fields of them and mostly with nonsense.
type random struct {
	*rand.Rand
	filler *randfill.Filler
}

func newRandom(seed uint64) random {
	r := random{rand.New(rand.NewPCG(seed, 0)), randfill.NewWithSeed(int64(seed)).NilChance(0.1).NumElements(0, 3)}
	r.filler.Funcs(
		func(t *metav1.Time, c randfill.Continue) { t.Time = time.Unix(c.Int63n(1<<34), 0) },
		func(f *metav1.FieldsV1, c randfill.Continue) { f.SetRawBytes([]byte(c.String(100))) },
	)
	return r
}

// one returns one of some texts.
func (r random) one(of ...string) string { return of[r.IntN(len(of))] }

// mostly returns a text, now and then one of others.
func (r random) mostly(text string, others ...string) string {
	if r.IntN(20) == 0 {
		return r.one(others...)
	}
	return text
}

func (r random) address() string {
	return r.mostly(fmt.Sprintf("10.0.0.%d", 1+r.IntN(200)), "2001:db8::1", "127.0.0.1", "", "x")
}

// meta makes metadata that says something to a load balancer.
func (r random) meta(m *metav1.ObjectMeta) {
	r.filler.Fill(m)
	m.Name, m.Namespace = r.mostly("web", "UPPER", ""), r.mostly("default", "shop", "UPPER", "")
	if m.Labels == nil || m.Annotations == nil {
		m.Labels, m.Annotations = map[string]string{}, map[string]string{}
	}
	m.Labels[discoveryv1.LabelServiceName] = r.mostly("web", "")
	if r.IntN(8) == 0 {
		m.Labels[r.one(corev1.IsHeadlessService, convert.LabelServiceProxyName, convert.LabelWeight)] = r.one("3", "")
	}
	for range r.IntN(4) {
		key := r.one(convert.AnnotationAlgorithm, convert.AnnotationWeights, convert.AnnotationDrainTime, convert.LabelWeight, "headgate.dev/x",
			"kubectl.kubernetes.io/last-applied-configuration", corev1.EndpointsLastChangeTriggerTime, metav1.InitialEventsAnnotationKey)
		m.Annotations[key] = r.one("maglev", "10.0.0.1=5", "30", "true", "2026-01-02T03:04:05.678Z", "")
	}
}

func (r random) service() objects.Object {
	svc := &corev1.Service{}
	r.filler.Fill(svc)
	r.meta(&svc.ObjectMeta)
	spec := &svc.Spec
	spec.ClusterIP, spec.ClusterIPs, spec.ExternalIPs = r.address(), nil, []string{r.address()}
	spec.Type = corev1.ServiceType(r.mostly("LoadBalancer", "ClusterIP", "NodePort", "ExternalName", "x"))
	spec.SessionAffinity = corev1.ServiceAffinity(r.mostly("ClientIP", "None", "x"))
	local := corev1.ServiceInternalTrafficPolicy(r.mostly("Local", "Cluster", "x"))
	spec.InternalTrafficPolicy, spec.ExternalTrafficPolicy = &local, corev1.ServiceExternalTrafficPolicy(local)
	spec.HealthCheckNodePort = 1 + r.Int32N(66000)
	if c := spec.SessionAffinityConfig; c != nil && c.ClientIP != nil {
		c.ClientIP.TimeoutSeconds = new(r.Int32N(90000))
	}
	for i := range spec.LoadBalancerSourceRanges {
		spec.LoadBalancerSourceRanges[i] = r.address() + "/24"
	}
	for i := range svc.Status.LoadBalancer.Ingress {
		svc.Status.LoadBalancer.Ingress[i].IP = r.address()
	}
	spec.Ports = spec.Ports[:min(len(spec.Ports), 1)]
	for i := range spec.Ports {
		p := &spec.Ports[i]
		p.Name, p.Protocol = r.mostly("http", "dns", "UPPER"), corev1.Protocol(r.mostly("TCP", "UDP", "", "x"))
		p.Port, p.NodePort = 1+r.Int32N(66000), 1+r.Int32N(66000)
	}
	return svc
}

func (r random) slice() objects.Object {
	es := &discoveryv1.EndpointSlice{}
	r.filler.Fill(es)
	r.meta(&es.ObjectMeta)
	es.AddressType = discoveryv1.AddressType(r.mostly("IPv4", "IPv6", "FQDN", "x"))
	for i := range es.Ports {
		if p := &es.Ports[i]; p.Port != nil && p.Protocol != nil {
			*p.Port, *p.Protocol = 1+r.Int32N(66000), corev1.Protocol(r.mostly("TCP", "UDP", "x"))
		}
	}
	for i := range es.Endpoints {
		e := &es.Endpoints[i]
		for j := range e.Addresses {
			e.Addresses[j] = r.address()
		}
		if to := e.TargetRef; to != nil {
			to.Kind, to.Namespace = r.mostly("Pod", "Node"), r.one(es.Namespace, "", "x")
		}
		if e.NodeName != nil && e.Zone != nil {
			*e.NodeName, *e.Zone = r.one("node-a", "node-b"), r.one("zone-a", "zone-b")
		}
	}
	return es
}

// object makes an object of one of the kinds.
func (r random) object(kind int) objects.Object {
	if kind == 0 {
		return r.service()
	}
	return r.slice()
}

// unknown returns fields that no message of today has.
func (r random) unknown() (b []byte) {
	b = protowire.AppendTag(b, 60, protowire.BytesType)
	b = protowire.AppendString(b, "a field of tomorrow")
	b = protowire.AppendTag(b, 1000, protowire.VarintType)
	b = protowire.AppendVarint(b, r.Uint64())
	b = protowire.AppendTag(b, 1001, protowire.Fixed64Type)
	return protowire.AppendFixed64(b, r.Uint64())
}

// damage changes some bytes: values, lengths, order, or how often there is something.
func (r random) damage(data []byte) []byte {
	for range 1 + r.IntN(3) {
		i := r.IntN(len(data) + 1)
		j := i + r.IntN(min(len(data)-i, 40)+1)
		switch r.IntN(5) {
		case 0:
			data = append(data[:i:i], data[j:]...)
		case 1:
			data = append(data[:j:j], data[i:]...)
		case 2:
			data = append(data[:i:i], append(r.unknown(), data[i:]...)...)
		default:
			data = append([]byte(nil), data...)
			if i < len(data) {
				data[i] ^= 1 << r.IntN(8)
			}
		}
	}
	return data
}
