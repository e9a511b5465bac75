package protobuf

import (
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// The fields of EndpointSlices and of endpoints that matter.
const (
	sliceEndpoints   protowire.Number = 2
	slicePorts       protowire.Number = 3
	sliceAddressType protowire.Number = 4

	endpointAddresses  protowire.Number = 1
	endpointConditions protowire.Number = 2
	endpointTarget     protowire.Number = 4
	endpointNode       protowire.Number = 6
	endpointZone       protowire.Number = 7
	endpointHints      protowire.Number = 8

	targetKind      protowire.Number = 1
	targetNamespace protowire.Number = 2
	targetName      protowire.Number = 3
)

// sliceReader reads EndpointSlices. What is the same for many endpoints is read once.
type sliceReader struct {
	slice      discoveryv1.EndpointSlice
	addresses  texts
	pods       texts                    // their names, one for each endpoint
	targets    []corev1.ObjectReference // one for each endpoint
	names      interned[string]         // of nodes and zones
	conditions interned[discoveryv1.EndpointConditions]
	hints      interned[discoveryv1.EndpointHints]
	ports      interned[discoveryv1.EndpointPort]
}

func newSliceReader() sliceReader {
	return sliceReader{names: internedBy(text), conditions: internedBy(message[discoveryv1.EndpointConditions]),
		hints: internedBy(message[discoveryv1.EndpointHints]), ports: internedBy(message[discoveryv1.EndpointPort])}
}

// read reads all that matters of a slice but its metadata.
func (r *sliceReader) read(b []byte) *discoveryv1.EndpointSlice {
	r.readTexts(b)
	es := &r.slice
	*es = discoveryv1.EndpointSlice{Endpoints: es.Endpoints[:0], Ports: es.Ports[:0]}
	for v := (fields{rest: b}); v.next(); {
		switch v.number {
		case sliceEndpoints:
			es.Endpoints = append(es.Endpoints, r.endpoint(v.bytes))
		case slicePorts:
			es.Ports = append(es.Ports, *r.ports.of(v.bytes))
		case sliceAddressType:
			es.AddressType = discoveryv1.AddressType(*r.names.of(v.bytes))
		}
	}
	return es
}

// readTexts reads the addresses of all endpoints, and the names of their Pods: those outlast the
// slice, so they have a string of their own.
func (r *sliceReader) readTexts(b []byte) {
	r.addresses.reset()
	r.pods.reset()
	for v := (fields{rest: b}); v.next(); {
		if v.number != sliceEndpoints {
			continue
		}
		var pod []byte
		for a := (fields{rest: v.bytes}); a.next(); {
			switch a.number {
			case endpointAddresses:
				r.addresses.add(a.bytes)
			case endpointTarget:
				pod = bytesOf(a.bytes, targetName)
			}
		}
		r.pods.add(pod)
	}
	r.addresses.cut()
	r.pods.cut()
	r.targets = slices.Grow(r.targets[:0], len(r.pods.rest))
}

// endpoint reads an endpoint, the first whose texts are not taken.
func (r *sliceReader) endpoint(b []byte) (e discoveryv1.Endpoint) {
	n, pod := 0, r.pods.take(1)[0]
	for v := (fields{rest: b}); v.next(); {
		switch v.number {
		case endpointAddresses:
			n++
		case endpointConditions:
			e.Conditions = *r.conditions.of(v.bytes)
		case endpointTarget:
			r.targets = append(r.targets, corev1.ObjectReference{
				Kind: *r.names.of(bytesOf(v.bytes, targetKind)), Namespace: *r.names.of(bytesOf(v.bytes, targetNamespace)), Name: pod,
			})
			e.TargetRef = &r.targets[len(r.targets)-1]
		case endpointNode:
			e.NodeName = r.names.of(v.bytes)
		case endpointZone:
			e.Zone = r.names.of(v.bytes)
		case endpointHints:
			e.Hints = r.hints.of(v.bytes)
		}
	}
	e.Addresses = r.addresses.take(n)
	return e
}

// bytesOf returns the bytes of a field of a message, nil where it has none.
func bytesOf(message []byte, number protowire.Number) []byte {
	for v := (fields{rest: message}); v.next(); {
		if v.number == number {
			return v.bytes
		}
	}
	return nil
}

// texts are read into one string, however many they are: collectors have less to look at.
type texts struct {
	bytes []byte // of all
	ends  []int  // of each of them in it
	all   []string
	rest  []string // those that nobody has taken
}

func (t *texts) reset() { t.bytes, t.ends, t.all = t.bytes[:0], t.ends[:0], t.all[:0] }

func (t *texts) add(b []byte) {
	t.bytes = append(t.bytes, b...)
	t.ends = append(t.ends, len(t.bytes))
}

// cut makes strings of what was added.
func (t *texts) cut() {
	all, begin := string(t.bytes), 0
	for _, end := range t.ends {
		t.all = append(t.all, all[begin:end])
		begin = end
	}
	t.rest = t.all
}

// take returns the next ones.
func (t *texts) take(n int) (out []string) {
	out, t.rest = t.rest[:n], t.rest[n:]
	return out
}
