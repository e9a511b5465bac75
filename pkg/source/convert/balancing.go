package convert

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/headgate/headgate/pkg/lb"
)

// What Services and EndpointSlices say of how clients are spread.
const (
	// AnnotationAlgorithm names the algorithm of a Service, one of
	// lb.Algorithms.
	AnnotationAlgorithm = "headgate.dev/algorithm"
	// AnnotationTableSize is the slots of a Service's table for hashes: a prime.
	AnnotationTableSize = "headgate.dev/table-size"
	// AnnotationWeights gives endpoints of a Service weights, by their addresses:
	// "10.0.0.1=5,10.0.0.2=0". Of the rest, EndpointSlices have the say.
	AnnotationWeights = "headgate.dev/weights"
	// LabelWeight, or the annotation of that name, is the weight of every
	// endpoint of an EndpointSlice. 0 gives them no new connections.
	LabelWeight = "headgate.dev/weight"
	// AnnotationZonePolicy says which endpoints of a Service are preferred, one
	// of lb.ZonePolicies.
	AnnotationZonePolicy = "headgate.dev/zone-policy"
	// AnnotationPassiveHealth says "on" or "off": whether backends that do not take
	// connections are avoided.
	AnnotationPassiveHealth = "headgate.dev/passive-health"
	// AnnotationSlowStart is for how long a backend that is new or has come back
	// gets fewer connections: seconds, or a duration.
	AnnotationSlowStart = "headgate.dev/slow-start"
	// AnnotationProbe says how backends of a Service without selector are asked
	// whether they are well: "tcp", or "http:/path" with ":port" behind it where
	// that is another one.
	AnnotationProbe = "headgate.dev/probe"
	// AnnotationProbeInterval is how often: seconds, or a duration.
	AnnotationProbeInterval = "headgate.dev/probe-interval"
)

// balancing returns what the annotations of a Service say. Where one of them
// cannot be used, there are problems, and what was in force stays.
func balancing(svc *corev1.Service) (b lb.Balancing, problems *findings) {
	f := &findings{object: "Service " + svc.Namespace + "/" + svc.Name}
	if len(svc.Annotations) == 0 {
		return b, f
	}
	b.Algorithm = f.algorithm(svc.Annotations[AnnotationAlgorithm])
	b.TableSize = f.tableSize(svc.Annotations[AnnotationTableSize])
	b.Weights = f.weights(svc.Annotations[AnnotationWeights])
	b.Zones = f.zonePolicy(svc.Annotations[AnnotationZonePolicy])
	b.Health.Passive = f.passiveHealth(svc.Annotations[AnnotationPassiveHealth])
	b.Health.SlowStart = f.slowStart(svc.Annotations[AnnotationSlowStart])
	b.Health.Probe = f.probe(svc, b.Health.Passive)
	if len(f.errs) > 0 {
		b = lb.Balancing{Keep: true}
	}
	return b, f
}

// annotation is an annotation as problems name it.
func annotation(name string) string { return "metadata.annotations[" + name + "]" }

func (f *findings) algorithm(value string) lb.Algorithm {
	if value == "" {
		return lb.AlgorithmDefault
	}
	a, ok := lb.ParseAlgorithm(value)
	if !ok {
		f.add(annotation(AnnotationAlgorithm), value, "is not an algorithm; the former one stays in force",
			"write one of "+strings.Join(lb.Algorithms(), ", "))
	}
	return a
}

func (f *findings) tableSize(value string) uint32 {
	if value == "" {
		return 0
	}
	n, err := strconv.ParseUint(value, 10, 32)
	switch {
	case err != nil || n < lb.MinTableSize || n > lb.MaxTableSize:
		f.add(annotation(AnnotationTableSize), value, "is out of range; the former size stays in force",
			fmt.Sprintf("write a prime from %d to %d", lb.MinTableSize, lb.MaxTableSize))
		return 0
	case !isPrime(n):
		f.add(annotation(AnnotationTableSize), value, "is not prime; the former size stays in force",
			fmt.Sprintf("write a prime, such as %d", nextPrime(n)))
		return 0
	}
	return uint32(n)
}

func isPrime(n uint64) bool {
	for d := uint64(2); d*d <= n; d++ {
		if n%d == 0 {
			return false
		}
	}
	return n > 1
}

// nextPrime returns the first prime from n on that may be a table's size, or the
// last one there is.
func nextPrime(n uint64) uint64 {
	for n < lb.MaxTableSize && !isPrime(n) {
		n++
	}
	return min(n, lb.MaxTableSize)
}

// weights reads "ADDRESS=WEIGHT,ADDRESS=WEIGHT".
func (f *findings) weights(value string) []lb.EndpointWeight {
	var out []lb.EndpointWeight
	for item := range strings.SplitSeq(value, ",") {
		if item = strings.TrimSpace(item); item == "" {
			continue
		}
		address, number, _ := strings.Cut(item, "=")
		addr, err := netip.ParseAddr(strings.TrimSpace(address))
		if err != nil || addr.Zone() != "" {
			f.add(annotation(AnnotationWeights), item, "does not begin with the address of an endpoint; the former weights stay in force",
				`write addresses with weights, such as "10.0.0.1=5,10.0.0.2=0"`)
			continue
		}
		weight, ok := f.weight(annotation(AnnotationWeights), strings.TrimSpace(number))
		if ok {
			out = append(out, lb.EndpointWeight{Addr: addr.Unmap(), Weight: weight})
		}
	}
	slices.SortFunc(out, func(a, b lb.EndpointWeight) int { return a.Addr.Compare(b.Addr) })
	for i := 1; i < len(out); i++ {
		if out[i].Addr == out[i-1].Addr {
			f.add(annotation(AnnotationWeights), out[i].Addr.String(), "is there twice; the former weights stay in force", "leave it there once")
		}
	}
	return out
}

func (f *findings) weight(field, value string) (weight uint32, ok bool) {
	n, err := strconv.ParseUint(value, 10, 32)
	if err != nil || n > lb.MaxWeight {
		f.add(field, value, "is not a weight; the former one stays in force",
			fmt.Sprintf("write a number from 0 (no new connections) to %d", lb.MaxWeight))
		return 0, false
	}
	return uint32(n), true
}

// setWeights gives the endpoints of a slice the weight that its annotation or
// label says.
func (f *findings) setWeights(es *discoveryv1.EndpointSlice, out *lb.Slice) {
	field, value := annotation(LabelWeight), es.Annotations[LabelWeight]
	if value == "" {
		field, value = "metadata.labels["+LabelWeight+"]", es.Labels[LabelWeight]
	}
	if value == "" {
		return
	}
	weight, ok := f.weight(field, value)
	out.KeepWeights = !ok
	if !ok {
		return
	}
	for i := range out.Endpoints {
		out.Endpoints[i].Weight, out.Endpoints[i].Drained = weight, weight == 0
	}
}
