package objects

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/source/convert"
)

// longName is as long as a name may be.
func longName(i int) string { return fmt.Sprintf("%0253d", i) }

// brokenService has a long name, and as many bytes as anybody likes where an address belongs.
func brokenService(i int) Object {
	svc := &corev1.Service{}
	svc.Namespace, svc.Name = "default", longName(i)
	svc.Spec.ClusterIP, svc.Spec.Ports = strings.Repeat("x", 2<<10), []corev1.ServicePort{{Port: 80}}
	return svc
}

// brokenSlice has 1,000 endpoints that cannot be used.
func brokenSlice(i int) Object {
	es := &discoveryv1.EndpointSlice{AddressType: discoveryv1.AddressTypeIPv4}
	es.Namespace, es.Name, es.Labels = "default", longName(i), map[string]string{discoveryv1.LabelServiceName: "web"}
	for range 1000 {
		es.Endpoints = append(es.Endpoints, discoveryv1.Endpoint{Addresses: []string{"10.0.0.256"}})
	}
	return es
}

// manyPorts has 1,000 ports, of which none can be used.
func manyPorts(i int) Object {
	svc := brokenService(i).(*corev1.Service)
	svc.Spec.ClusterIP = "10.96.0.1"
	for range 1000 {
		svc.Spec.Ports = append(svc.Spec.Ports, corev1.ServicePort{Name: "a", Port: -1})
	}
	return svc
}

// Of what is broken only what people are told stays in memory, however much there is of it.
func TestBrokenObjectsTakeLittleMemory(t *testing.T) {
	for _, c := range []struct {
		name    string
		kind    string
		objects int
		make    func(i int) Object
		most    uint64 // bytes of an object, twice to four times what it takes
	}{
		{"Services with long values", ServiceKind, 100_000, brokenService, 5 << 9},
		{"slices with 1,000 endpoints", SliceKind, 300, brokenSlice, 12 << 10},
		{"Services with 1,000 ports", ServiceKind, 300, manyPorts, 12 << 10},
	} {
		t.Run(c.name, func(t *testing.T) {
			out := NewBatch("node-a", ServiceKind, SliceKind)
			var store *Store
			for _, k := range Kinds("node-a", convert.Options{}, false) {
				if k.Name == c.kind {
					store = NewStore(k, out)
				}
			}
			before := heapInUse()
			for i := range c.objects {
				store.Apply(store.Read(c.make(i)))
			}
			took := (heapInUse() - before) / uint64(c.objects)
			if took > c.most {
				t.Errorf("a broken object takes %d bytes, want %d at most", took, c.most)
			}
			if n := len(out.problems); n != c.objects {
				t.Errorf("%d objects have problems, want all %d", n, c.objects)
			}
			for id, problems := range out.problems {
				if len(problems) > lb.MostProblems+1 {
					t.Fatalf("%s has %d problems, want %d at most", id.Name, len(problems), lb.MostProblems+1)
				}
			}
			t.Logf("a broken object takes %d bytes", took)
		})
	}
}

// heapInUse returns how many bytes are in use once all garbage is gone.
func heapInUse() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// validSlice has 1,000 endpoints on 50 nodes, with names as long as they may be.
func validSlice(i int) Object {
	es := &discoveryv1.EndpointSlice{AddressType: discoveryv1.AddressTypeIPv4}
	es.Namespace, es.Name, es.Labels = "default", longName(i), map[string]string{discoveryv1.LabelServiceName: "web"}
	es.Ports = []discoveryv1.EndpointPort{{Name: new("http"), Port: new(int32(8080)), Protocol: new(corev1.ProtocolTCP)}}
	for k := range 1000 {
		es.Endpoints = append(es.Endpoints, discoveryv1.Endpoint{Addresses: []string{fmt.Sprintf("10.%d.%d.%d", i, k>>8, k&0xff)}, NodeName: new(longName(k % 50))})
	}
	return es
}

// validPorts is a Service of 1,000 ports with names as long as they may be.
func validPorts(i int) Object {
	svc := &corev1.Service{}
	svc.Namespace, svc.Name = "default", fmt.Sprintf("%063d", i)
	svc.Spec.ClusterIP = fmt.Sprintf("10.96.%d.%d", i>>8, i&0xff)
	svc.Spec.ClusterIPs = []string{svc.Spec.ClusterIP}
	for k := range 1000 {
		svc.Spec.Ports = append(svc.Spec.Ports, corev1.ServicePort{Name: fmt.Sprintf("%063d", k), Protocol: corev1.ProtocolTCP, Port: int32(1 + k)})
	}
	return svc
}

func TestLargeObjectsTakeWhatIsKeptOfThem(t *testing.T) {
	for _, c := range []struct {
		name string
		kind string
		make func(i int) Object
		most uint64 // bytes of an object, twice what it takes
	}{
		{"slices with 1,000 endpoints", SliceKind, validSlice, 80 << 10},
		{"Services with 1,000 ports", ServiceKind, validPorts, 200 << 10},
	} {
		t.Run(c.name, func(t *testing.T) {
			const objects = 100
			out := NewBatch("node-a", ServiceKind, SliceKind)
			var store *Store
			for _, k := range Kinds("node-a", convert.Options{}, false) {
				if k.Name == c.kind {
					store = NewStore(k, out)
				}
			}
			before := heapInUse()
			for i := range objects {
				store.Apply(store.Read(c.make(i)))
			}
			if took := (heapInUse() - before) / objects; took > c.most {
				t.Errorf("an object takes %d bytes, want %d at most", took, c.most)
			} else {
				t.Logf("an object takes %d bytes", took)
			}
			if len(out.problems) > 0 {
				t.Errorf("valid objects have problems: %v", out.problems)
			}
			runtime.KeepAlive(store)
		})
	}
}

// Whoever writes one of many broken objects again and again has the agent do no more than what one takes.
func TestAChangeOfABrokenObjectCostsTheSameHoweverManyThereAre(t *testing.T) {
	cost := func(objects int) (allocated uint64, u lb.Update) {
		out := NewBatch("node-a")
		note := func(i, problem int) {
			id := ID{ServiceKind, Key{"default", longName(i)}}
			out.Note(id, []lb.Problem{{Object: id.String(), Reason: fmt.Sprint("is wrong in way ", problem)}})
		}
		for i := range objects {
			note(i, 0)
		}
		out.Next()
		out.Note(ID{ServiceKind, Key{"default", longName(objects)}}, []lb.Problem{{Reason: "is another one"}}) // room for it
		out.Next()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		const changes = 20
		for i := range changes {
			note(i%2, i+1)                                              // it is broken otherwise
			out.Note(ID{Kind: "one"}, nil)                              // it is good already
			out.Note(ID{ServiceKind, Key{"default", longName(i)}}, nil) // one becomes good
			out.Next()
			note(i, i+1) // and broken again
			u, _ = out.Next()
		}
		runtime.ReadMemStats(&after)
		return (after.TotalAlloc - before.TotalAlloc) / changes, u
	}
	few, _ := cost(2 * lb.MostTogether)
	many, u := cost(100_000)
	if many > 2*few {
		t.Errorf("a change takes %d bytes beside 100,000 broken objects, and %d beside %d", many, few, 2*lb.MostTogether)
	}
	if got := len(u.Problems); got != lb.MostTogether {
		t.Errorf("an update tells of %d problems, want %d", got, lb.MostTogether)
	}
	if want := 100_001 - lb.MostTogether; u.MoreProblems != want {
		t.Errorf("an update counts %d problems more, want %d", u.MoreProblems, want)
	}
	if want, got := "is wrong in way 20", u.Problems[19].Reason; got != want {
		t.Errorf("the twentieth object %q, want %q", got, want)
	}
}
