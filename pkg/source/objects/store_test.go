package objects

import (
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/source/convert"
)

// good gives an object of any kind a name and what it needs to matter.
func good(tb testing.TB, obj Object) Object {
	tb.Helper()
	obj.SetName("web")
	obj.SetNamespace("default")
	switch o := obj.(type) {
	case *corev1.Service:
		o.Spec.ClusterIP, o.Spec.Ports = "10.96.0.1", []corev1.ServicePort{{Port: 80}}
	case *discoveryv1.EndpointSlice:
		o.AddressType, o.Labels = discoveryv1.AddressTypeIPv4, map[string]string{discoveryv1.LabelServiceName: "web"}
		o.Endpoints = []discoveryv1.Endpoint{{Addresses: []string{"10.244.0.1"}}}
	case *corev1.Node:
		o.SetNamespace("")
		o.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.0.2.1"}}
	case *corev1.Pod:
		o.Spec.NodeName, o.Status.PodIP = "web", "10.244.0.1"
	case *networkingv1.ServiceCIDR:
		o.SetNamespace("")
		o.Spec.CIDRs = []string{"10.96.0.0/16"}
	default:
		tb.Fatalf("%T: say here what it needs", obj)
	}
	return obj
}

// objectsIn returns the types of the API that can be reached from a type.
func objectsIn(t reflect.Type, seen map[reflect.Type]bool) (found []string) {
	if seen[t] {
		return nil
	}
	seen[t] = true
	if strings.HasPrefix(t.PkgPath(), "k8s.io/") {
		return []string{t.String()}
	}
	switch t.Kind() {
	case reflect.Map:
		found = append(found, objectsIn(t.Key(), seen)...)
		fallthrough
	case reflect.Pointer, reflect.Slice, reflect.Array, reflect.Chan:
		found = append(found, objectsIn(t.Elem(), seen)...)
	case reflect.Struct:
		for i := range t.NumField() {
			found = append(found, objectsIn(t.Field(i).Type, seen)...)
		}
	case reflect.Interface:
		found = append(found, t.String()) // which could be anything
	}
	return found
}

// Everything in an update and of a kind comes after it is read: what an object of the
// API is read to cannot lead to one.
func TestNoObjectOfTheAPIIsKept(t *testing.T) {
	for _, k := range Kinds("web", convert.Options{}, true) {
		v := k.Read(good(t, k.New())).Value
		if v == nil {
			t.Errorf("nothing matters of a good %s", k.Name)
			continue
		}
		for _, found := range objectsIn(reflect.TypeOf(v), map[reflect.Type]bool{}) {
			t.Errorf("%T can hold %s", v, found)
		}
	}
}

// What holds for one kind holds for all, those added later too.
func TestAnObjectOfAnyKindComesStaysAndGoes(t *testing.T) {
	for _, k := range Kinds("web", convert.Options{Probes: true}, true) {
		out := NewBatch("node-a", k.Name)
		s := NewStore(k, out)
		if _, ok := out.Next(); ok {
			t.Errorf("%s: something is passed on before all is known", k.Name)
		}
		s.Replace([]*Entry{k.Read(good(t, k.New()))})
		came, ok := out.Next()
		if !ok {
			t.Errorf("%s: nothing is passed on when all is known", k.Name)
		}
		s.Apply(k.Read(good(t, k.New())))
		if u, ok := out.Next(); ok {
			t.Errorf("%s: passed on again: %+v", k.Name, u)
		}
		bad := good(t, k.New())
		bad.SetName("Not A Name")
		e := k.Read(bad)
		e.Key, e.Value, e.Bad = KeyOf(good(t, k.New())), nil, true
		s.Apply(e)
		if u, _ := out.Next(); len(u.Frozen)+len(u.FrozenEndpoints)+len(u.Services)+len(u.Slices)+len(u.Pods)+len(u.NodeAddresses)+len(u.PodRanges)+len(u.ServiceCIDRs) > 0 {
			t.Errorf("%s: a bad version of what was good changes more than problems: %+v", k.Name, u)
		}
		s.Replace(nil)
		gone, ok := out.Next()
		if !ok || len(gone.Problems) > 0 {
			t.Errorf("%s: gone, told: %t, with problems %v", k.Name, ok, gone.Problems)
		}
		came.Node, gone.Node = nil, nil
		if cmp.Equal(came, gone, cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{}), cmpopts.EquateEmpty()) {
			t.Errorf("%s: gone is as there: %+v", k.Name, gone)
		}
	}
}

// A Service waits for an object of it that was never good, until the object is good or
// gone.
func TestWhatWasNeverGoodFreezesItsService(t *testing.T) {
	web := lb.ServiceName{Namespace: "default", Name: "web"}
	for _, k := range Kinds("web", convert.Options{}, false)[:2] {
		for end, does := range map[string]func(*Store, *Entry){
			"mended":   func(s *Store, e *Entry) { s.Apply(e) },
			"removed":  func(s *Store, e *Entry) { s.Remove(e.Key) },
			"unlisted": func(s *Store, _ *Entry) { s.Replace(nil) },
		} {
			out := NewBatch("node-a")
			s := NewStore(k, out)
			e := k.Read(good(t, k.New()))
			s.Apply(&Entry{Key: e.Key, Bad: true, Owner: e.Owner, Problems: []lb.Problem{{Object: "it", Reason: "is bad"}}})
			u, ok := out.Next()
			if frozen := map[string]bool{ServiceKind: u.Frozen[web], SliceKind: u.FrozenEndpoints[web]}; !ok || !frozen[k.Name] || len(u.Frozen)+len(u.FrozenEndpoints) != 1 || len(u.Problems) != 1 {
				t.Errorf("%s: frozen %v, of endpoints %v, problems %v", k.Name, u.Frozen, u.FrozenEndpoints, u.Problems)
			}
			does(s, e)
			if u, ok := out.Next(); !ok || len(u.Frozen)+len(u.FrozenEndpoints)+len(u.Problems) > 0 {
				t.Errorf("%s, %s: frozen %v, of endpoints %v, problems %v", k.Name, end, u.Frozen, u.FrozenEndpoints, u.Problems)
			}
		}
	}
}

func TestProblemsAreToldInOrderAndOnce(t *testing.T) {
	out := NewBatch("node-a", "Service")
	problem := func(object string) []lb.Problem { return []lb.Problem{{Object: object, Reason: "is wrong"}} }
	out.Note(ID{Kind: "Service", Key: Key{"default", "web"}}, problem("Service default/web"))
	out.Note(ID{Kind: "Node"}, problem("Node"))
	if u, ok := out.Next(); ok {
		t.Errorf("told before all is known of Services: %+v", u)
	}
	out.Answered("Service")
	u, ok := out.Next()
	if !ok || len(u.Problems) != 2 || u.Problems[0].Object != "Node" || u.Node == nil || u.Node.Name != "node-a" {
		t.Errorf("%t, node %v, problems %v", ok, u.Node, u.Problems)
	}
	out.Note(ID{Kind: "Node"}, problem("Node"))
	out.SetPartial(false)
	if u, ok := out.Next(); ok {
		t.Errorf("nothing is new, and told is %+v", u)
	}
	out.SetPartial(true)
	if u, ok := out.Next(); !ok || !u.Partial || len(u.Problems) != 2 {
		t.Errorf("partial %t, problems %v", u.Partial, u.Problems)
	}
}
