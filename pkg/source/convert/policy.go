package convert

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

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
	// AnnotationDrainTime says how long what is connected to a backend may go on
	// after the backend has left the Service.
	AnnotationDrainTime = "headgate.dev/drain-time"
	// AnnotationUDPClose says "on" or "off": whether connected UDP sockets are closed when
	// their backend leaves, instead of getting another one.
	AnnotationUDPClose = "headgate.dev/udp-close"
)

// serviceAnnotations are those of ours that a Service may have, and what sets what
// they say where they are there.
var serviceAnnotations = []struct {
	name string
	set  func(f *findings, value string, to *lb.Service)
}{
	{AnnotationAlgorithm, func(f *findings, value string, to *lb.Service) { to.Algorithm = f.algorithm(value) }},
	{AnnotationTableSize, func(f *findings, value string, to *lb.Service) { to.TableSize = f.tableSize(value) }},
	{AnnotationWeights, func(f *findings, value string, to *lb.Service) { to.Weights = f.weights(value) }},
	{AnnotationZonePolicy, func(f *findings, value string, to *lb.Service) { to.Zones = f.zonePolicy(value) }},
	{AnnotationPassiveHealth, func(f *findings, value string, to *lb.Service) {
		to.PassiveHealth = f.onOff(AnnotationPassiveHealth, value)
	}},
	{AnnotationSlowStart, func(f *findings, value string, to *lb.Service) { to.SlowStart = f.slowStart(value) }},
	{AnnotationForwarding, func(f *findings, value string, to *lb.Service) { to.Forwarding = f.forwarding(value) }},
	{AnnotationUDPClose, func(f *findings, value string, to *lb.Service) {
		to.CloseUDP = f.onOff(AnnotationUDPClose, value) == lb.SwitchOn
	}},
	{AnnotationProbe, nil}, // these two go together with others
	{AnnotationProbeInterval, nil},
	{AnnotationDrainTime, func(f *findings, value string, to *lb.Service) {
		to.DrainTime = f.duration(AnnotationDrainTime, value, 0, 24*time.Hour, "0 to 24 hours")
	}},
}

// stays ends the reason of every problem with an annotation on balancing: what all of
// them said stays in force together. Of a Service that this process has never seen
// without such a problem, nothing is known to stay.
const stays = "; changes of the Service's annotations wait until it is mended, and an agent that starts leaves it out"

// setPolicy sets what the annotations of a Service say, but for those that cannot be
// used: of these there are problems, and what was in force of all is to stay.
func setPolicy(svc *corev1.Service, out *lb.Service) (problems *findings) {
	f := &findings{object: "Service " + svc.Namespace + "/" + svc.Name}
	if len(svc.Annotations) == 0 {
		return f
	}
	for _, a := range serviceAnnotations {
		if value, given := svc.Annotations[a.name]; given && a.set != nil {
			f.unlessBad(out, func() { a.set(f, value, out) })
		}
	}
	f.unlessBad(out, func() { out.Probe = f.probe(svc, out.PassiveHealth) })
	f.unknownAnnotations(svc.Annotations)
	return f
}

// unlessBad undoes what a function sets where it finds a problem, and has the Service
// keep what was in force.
func (f *findings) unlessBad(out *lb.Service, set func()) {
	before, found := *out, len(f.errs)+f.more
	if set(); len(f.errs)+f.more > found {
		*out = before
		out.KeepPolicy = true
	}
}

// unknownAnnotations finds names of ours that mean nothing at a Service, such as
// misspelt ones. They keep nothing else from being used.
func (f *findings) unknownAnnotations(annotations map[string]string) {
	var known []string
	for _, a := range serviceAnnotations {
		known = append(known, a.name)
	}
	for _, name := range slices.Sorted(maps.Keys(annotations)) {
		if strings.HasPrefix(name, "headgate.dev/") && !slices.Contains(known, name) {
			f.add(annotation(name), annotations[name], "has no effect: Services have no such annotation",
				"write one of "+strings.Join(known, ", "))
		}
	}
}

// annotation is an annotation as problems name it.
func annotation(name string) string { return "metadata.annotations[" + name + "]" }

// oneOf reads an annotation that is one of some names, or not there. What says why another
// value is wrong.
func oneOf[T any](f *findings, name, value, what string, parse func(string) (T, bool), names []string) (t T) {
	if value == "" {
		return t
	}
	t, ok := parse(value)
	if !ok {
		f.add(annotation(name), value, what+stays, "write one of "+strings.Join(names, ", "))
	}
	return t
}

func (f *findings) algorithm(value string) lb.Algorithm {
	return oneOf(f, AnnotationAlgorithm, value, "is not an algorithm", lb.ParseAlgorithm, lb.Algorithms())
}

func (f *findings) zonePolicy(value string) lb.ZonePolicy {
	return oneOf(f, AnnotationZonePolicy, value, "is not a zone policy", lb.ParseZonePolicy, lb.ZonePolicies())
}

func (f *findings) tableSize(value string) uint32 {
	if value == "" {
		return 0
	}
	n, err := strconv.ParseUint(value, 10, 32)
	switch {
	case err != nil || n < lb.MinTableSize || n > lb.MaxTableSize:
		f.add(annotation(AnnotationTableSize), value, "is out of range"+stays,
			fmt.Sprintf("write a prime from %d to %d", lb.MinTableSize, lb.MaxTableSize))
		return 0
	case !isPrime(n):
		f.add(annotation(AnnotationTableSize), value, "is not prime"+stays,
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

func (f *findings) onOff(name, value string) lb.Switch {
	switch value {
	case "":
		return lb.SwitchDefault
	case "on":
		return lb.SwitchOn
	case "off":
		return lb.SwitchOff
	}
	f.add(annotation(name), value, "is neither on nor off"+stays, "write on or off")
	return lb.SwitchDefault
}

// slowStart returns seconds, 0 for none.
func (f *findings) slowStart(value string) uint32 {
	if value == "" {
		return 0
	}
	d := f.duration(AnnotationSlowStart, value, 0, time.Hour, "0 to 1 hour")
	return uint32((d + time.Second - 1) / time.Second)
}

// duration reads seconds, or a duration, within a range; 0 where it is neither.
func (f *findings) duration(name, value string, shortest, longest time.Duration, within string) time.Duration {
	d, err := time.ParseDuration(value)
	if seconds, bad := strconv.ParseUint(value, 10, 32); bad == nil {
		d, err = time.Duration(seconds)*time.Second, nil
	}
	switch {
	case err != nil:
		f.add(annotation(name), value, "is not a duration"+stays, `write seconds, such as "30", or a duration, such as "5m"`)
	case d < shortest || d > longest:
		f.add(annotation(name), value, "is out of range"+stays, "write "+within)
	default:
		return d
	}
	return 0
}
