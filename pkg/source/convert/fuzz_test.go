package convert

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/headgate/headgate/pkg/lb"
)

// FuzzAnnotations gives Services, slices and Pods annotations of any text, one a
// line as NAME=VALUE: whatever they say, the Service stays, what cannot be used is
// told with a remedy in a bounded number of lines, and what is used is in range.
func FuzzAnnotations(f *testing.F) {
	for _, seed := range []string{
		"algorithm=maglev\ntable-size=65537\nweights=10.0.0.1=5, 10.0.0.2=0",
		"weights=10.0.0.1=5,10.0.0.1=6,::ffff:10.0.0.1=7,fe80::1%eth0=1,x=70000",
		"table-size=4294967295\npassive-health=off\nslow-start=1h30m\nzone-policy=spill",
		"probe=http:/healthz:8080\nprobe-interval=-1s\ndrain-time=86401\nweight=65536\nudp-close=maybe",
		"probe=http:/\x1b[31m\nsocket-balancing=off\nslow-start=99999999999999h",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		annotations := map[string]string{}
		for line := range strings.SplitSeq(text, "\n") {
			name, value, _ := strings.Cut(line, "=")
			annotations["headgate.dev/"+name] = value
		}
		svc, err := Options{}.Service(service(func(s *corev1.Service) { s.Annotations = annotations }))
		if svc == nil {
			t.Fatalf("the Service is gone: %v", err)
		}
		if n := svc.TableSize; n != 0 && (n < lb.MinTableSize || n > lb.MaxTableSize || !isPrime(uint64(n))) {
			t.Errorf("table size %d", n)
		}
		if svc.DrainTime < 0 || svc.DrainTime > 24*time.Hour {
			t.Errorf("drain time %s", svc.DrainTime)
		}
		for _, w := range svc.Weights {
			if w.Weight > lb.MaxWeight || !w.Addr.IsValid() || w.Addr.Is4In6() {
				t.Errorf("weight %+v", w)
			}
		}
		es, sliceErr := Slice(slice(func(es *discoveryv1.EndpointSlice) { es.Annotations = annotations }))
		if es == nil {
			t.Errorf("the slice is gone: %v", sliceErr)
		}
		problems := append(Problems(err), Problems(sliceErr)...)
		if len(problems) > 3*(lb.MostProblems+1) {
			t.Errorf("%d problems", len(problems))
		}
		for _, p := range problems {
			if p.Object == "" || p.Remedy == "" || p.Error() != lb.Printable(p.Error()) {
				t.Errorf("problem %q", p.Error())
			}
		}
	})
}
