package convert

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/headgate/headgate/pkg/lb"
)

func annotated(annotations map[string]string) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default", Annotations: annotations},
		Spec:       corev1.ServiceSpec{ClusterIP: "10.96.0.1", Ports: []corev1.ServicePort{{Port: 80}}},
	}
}

func TestAnnotationsSayHowAServiceIsBalanced(t *testing.T) {
	svc, err := Service(annotated(map[string]string{
		AnnotationAlgorithm: "maglev", AnnotationTableSize: "8191", AnnotationWeights: " fd00::1=0, 10.0.0.2=5,10.0.0.1 = 65535",
	}))
	if err != nil {
		t.Fatal(err)
	}
	want := lb.Service{Policy: lb.Policy{Algorithm: lb.Maglev, TableSize: 8191}, Weights: []lb.EndpointWeight{
		{Addr: netip.MustParseAddr("10.0.0.1"), Weight: 65535}, {Addr: netip.MustParseAddr("10.0.0.2"), Weight: 5}, {Addr: netip.MustParseAddr("fd00::1")},
	}}
	got := lb.Service{Policy: svc.Policy, Weights: svc.Weights, KeepPolicy: svc.KeepPolicy}
	if diff := cmp.Diff(want, got, cmpopts.EquateComparable(netip.Addr{})); diff != "" {
		t.Errorf("policy (-want +got):\n%s", diff)
	}
	for _, name := range lb.Algorithms() {
		if svc, err := Service(annotated(map[string]string{AnnotationAlgorithm: name})); err != nil || svc.Algorithm.String() != name {
			t.Errorf("algorithm %q is not taken: %v", name, err)
		}
	}
}

// The rest of the Service is good, and is used; so are the other annotations.
func TestABadPolicyIsReportedAndLeftOut(t *testing.T) {
	for annotation, values := range map[string][]string{
		AnnotationAlgorithm: {"fastest", "Random", "random "},
		AnnotationTableSize: {"0", "1", "2", "-7", "4096", "655374", "1e3", "many"},
		AnnotationWeights:   {"10.0.0.1", "10.0.0.1=-1", "10.0.0.1=1000000000", "10.0.0.1=1.5", "web=1", "10.0.0.1=1,10.0.0.1=2", "=3"},
	} {
		for _, value := range values {
			svc, err := Service(annotated(map[string]string{annotation: value, AnnotationDrainTime: "30", "example.org/of-others": "x"}))
			problems := Problems(err)
			if svc == nil || !svc.KeepPolicy || len(problems) != 1 {
				t.Errorf("%s %q: Service %v with problems %v, want it without what is wrong", annotation, value, svc, problems)
				continue
			}
			if diff := cmp.Diff(lb.Policy{DrainTime: 30 * time.Second}, svc.Policy); diff != "" || svc.Weights != nil {
				t.Errorf("%s %q: weights %v and policy (-want +got):\n%s", annotation, value, svc.Weights, diff)
			}
			p := problems[0]
			if p.Object != "Service default/web" || !strings.Contains(p.Field, annotation) || p.Remedy == "" {
				t.Errorf("%s %q: %v names not the object, field and remedy", annotation, value, p)
			}
		}
	}
}

func TestASizeThatIsNotPrimeComesWithOneThatIs(t *testing.T) {
	_, err := Service(annotated(map[string]string{AnnotationTableSize: "65536"}))
	if err == nil || !strings.Contains(err.Error(), "65537") {
		t.Errorf("%v, want 65537 in it", err)
	}
}

func TestASliceGivesItsEndpointsAWeight(t *testing.T) {
	slice := func(labels, annotations map[string]string) *discoveryv1.EndpointSlice {
		labels[discoveryv1.LabelServiceName] = "web"
		return &discoveryv1.EndpointSlice{
			ObjectMeta:  metav1.ObjectMeta{Name: "web-1", Namespace: "default", Labels: labels, Annotations: annotations},
			AddressType: discoveryv1.AddressTypeIPv4,
			Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{"10.0.0.1"}}},
		}
	}
	for _, c := range []struct {
		labels, annotations map[string]string
		weight              uint32
		drained, keep       bool
	}{
		{map[string]string{}, nil, 0, false, false},
		{map[string]string{LabelWeight: "7"}, nil, 7, false, false},
		{map[string]string{LabelWeight: "0"}, nil, 0, true, false},
		{map[string]string{LabelWeight: "7"}, map[string]string{LabelWeight: "9"}, 9, false, false},
		{map[string]string{LabelWeight: "-1"}, nil, 0, false, true},
		{map[string]string{}, map[string]string{LabelWeight: "1000000000"}, 0, false, true},
	} {
		out, err := Slice(slice(c.labels, c.annotations))
		if out == nil {
			t.Fatalf("%v %v: %v", c.labels, c.annotations, err)
		}
		e := out.Endpoints[0]
		if e.Weight != c.weight || e.Drained != c.drained || out.KeepWeights != c.keep || (err != nil) != c.keep {
			t.Errorf("%v %v: %+v, keep %v: %v", c.labels, c.annotations, e, out.KeepWeights, err)
		}
		if c.keep && !strings.Contains(err.Error(), "is not a weight; the former one stays in force, and an agent that starts leaves it out; write a number") {
			t.Errorf("%v %v: %v, want what becomes of the weight", c.labels, c.annotations, err)
		}
	}
}

// A misspelt annotation keeps nothing else from being used.
func TestAnAnnotationThatServicesDoNotHaveIsNamed(t *testing.T) {
	svc, err := Service(annotated(map[string]string{AnnotationAlgorithm: "rr", "headgate.dev/algorithms": "maglev", "example.org/algorithms": "x"}))
	problems := Problems(err)
	if svc == nil || svc.Algorithm != lb.RR || len(problems) != 1 {
		t.Fatalf("Service %v with problems %v, want it by rr with one problem", svc, problems)
	}
	if p := problems[0]; p.Field != "metadata.annotations[headgate.dev/algorithms]" || p.Value != "maglev" || !strings.Contains(p.Remedy, AnnotationAlgorithm) {
		t.Errorf("%v names not the annotation, its value and those there are", p)
	}
}
