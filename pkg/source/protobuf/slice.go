package protobuf

import (
	"google.golang.org/protobuf/encoding/protowire"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// The fields of EndpointSlices and of endpoints that matter.
const (
	sliceEndpoints   protowire.Number = 2
	slicePorts       protowire.Number = 3
	sliceAddressType protowire.Number = 4

	endpointAddresses  protowire.Number = 1
	endpointConditions protowire.Number = 2
	endpointNode       protowire.Number = 6
	endpointZone       protowire.Number = 7
	endpointHints      protowire.Number = 8
)

// sliceReader reads EndpointSlices. What is the same for many endpoints is read once.
type sliceReader struct {
	slice      discoveryv1.EndpointSlice
	text       []byte // of all addresses
	ends       []int  // of each of them in it
	addresses  []string
	names      interned[string] // of nodes and zones
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
	r.readAddresses(b)
	es := &r.slice
	*es = discoveryv1.EndpointSlice{Endpoints: es.Endpoints[:0], Ports: es.Ports[:0]}
	rest := r.addresses
	for v := (fields{rest: b}); v.next(); {
		switch v.number {
		case sliceEndpoints:
			es.Endpoints = append(es.Endpoints, r.endpoint(v.bytes, &rest))
		case slicePorts:
			es.Ports = append(es.Ports, *r.ports.of(v.bytes))
		case sliceAddressType:
			es.AddressType = discoveryv1.AddressType(*r.names.of(v.bytes))
		}
	}
	return es
}

// readAddresses reads the addresses of all endpoints into one string.
func (r *sliceReader) readAddresses(b []byte) {
	r.text, r.ends, r.addresses = r.text[:0], r.ends[:0], r.addresses[:0]
	for v := (fields{rest: b}); v.next(); {
		if v.number != sliceEndpoints {
			continue
		}
		for a := (fields{rest: v.bytes}); a.next(); {
			if a.number == endpointAddresses {
				r.text = append(r.text, a.bytes...)
				r.ends = append(r.ends, len(r.text))
			}
		}
	}
	all, begin := string(r.text), 0
	for _, end := range r.ends {
		r.addresses = append(r.addresses, all[begin:end])
		begin = end
	}
}

// endpoint reads an endpoint, which takes its addresses from the front of the rest.
func (r *sliceReader) endpoint(b []byte, rest *[]string) (e discoveryv1.Endpoint) {
	n := 0
	for v := (fields{rest: b}); v.next(); {
		switch v.number {
		case endpointAddresses:
			n++
		case endpointConditions:
			e.Conditions = *r.conditions.of(v.bytes)
		case endpointNode:
			e.NodeName = r.names.of(v.bytes)
		case endpointZone:
			e.Zone = r.names.of(v.bytes)
		case endpointHints:
			e.Hints = r.hints.of(v.bytes)
		}
	}
	e.Addresses, *rest = (*rest)[:n], (*rest)[n:]
	return e
}
