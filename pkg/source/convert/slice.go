package convert

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/headgate/headgate/pkg/lb"
)

// Slice returns what matters of an EndpointSlice, or nil and no error where no
// proxy uses it: without the label that names its Service, of a headless
// Service, or with host names for addresses. Problems reads the error. Where
// both results are not nil, the slice is to be used without what the error
// speaks of: one endpoint or port that cannot be used takes none of the others
// away. A slice of which nothing can be used is no slice.
func Slice(es *discoveryv1.EndpointSlice) (*lb.Slice, error) {
	service, headless := es.Labels[discoveryv1.LabelServiceName], false
	if _, ok := es.Labels[corev1.IsHeadlessService]; ok {
		headless = true
	}
	if service == "" || headless || es.AddressType == discoveryv1.AddressTypeFQDN {
		return nil, nil
	}
	out := &lb.Slice{SliceName: lb.SliceName{Namespace: es.Namespace, Name: es.Name}, Service: service}
	f := &findings{object: "EndpointSlice " + out.String()}
	f.name("metadata.name", es.Name, true)
	f.name("metadata.namespace", es.Namespace, false)
	is4 := f.addressType(es.AddressType)
	if len(f.errs) > 0 {
		return nil, f.err() // it has no place, or no family
	}
	out.Ports = f.slicePorts(es.Ports)
	out.Endpoints = f.endpoints(es, is4)
	out.LastChangeTrigger = lastChangeTrigger(es)
	f.setWeights(es, out)
	if len(out.Endpoints) == 0 && hasAddresses(es) || len(out.Ports) == 0 && hasPorts(es) {
		return nil, f.err()
	}
	return out, f.err()
}

// hasAddresses says whether a slice means to have endpoints.
func hasAddresses(es *discoveryv1.EndpointSlice) bool {
	return slices.ContainsFunc(es.Endpoints, func(e discoveryv1.Endpoint) bool { return len(e.Addresses) > 0 })
}

// hasPorts says whether a slice means to have ports.
func hasPorts(es *discoveryv1.EndpointSlice) bool { return slices.ContainsFunc(es.Ports, isNamed) }

// isNamed says whether a Service port can stand before a port: without a name or
// number none can.
func isNamed(p discoveryv1.EndpointPort) bool { return p.Name != nil && p.Port != nil }

// lastChangeTrigger returns when that happened which the slice was last changed
// for, as its controller says; the zero time where it does not.
func lastChangeTrigger(es *discoveryv1.EndpointSlice) time.Time {
	t, err := time.Parse(time.RFC3339Nano, es.Annotations[corev1.EndpointsLastChangeTriggerTime])
	if err != nil {
		return time.Time{} // a measurement less, and nothing else
	}
	return t
}

// slicePorts leaves out ports without a name or number, and those that cannot be
// used.
func (f *findings) slicePorts(ports []discoveryv1.EndpointPort) []lb.SlicePort {
	var out []lb.SlicePort
	byName := map[string]int{}
	for i, p := range ports {
		if !isNamed(p) {
			continue
		}
		field := fmt.Sprintf("ports[%d]", i)
		if first, ok := seen(byName, *p.Name, i); ok {
			f.add(field+".name", *p.Name, fmt.Sprintf("is the name of ports[%d] too", first), "give it another name")
			continue
		}
		port := lb.SlicePort{Name: *p.Name, Protocol: lb.TCP, Port: f.port(field+".port", *p.Port)}
		if p.Protocol != nil {
			port.Protocol = f.protocol(field, *p.Protocol)
		}
		if port.Port != 0 && port.Protocol != 0 {
			out = append(out, port)
		}
	}
	return out
}

// addressType says whether a slice is one of IPv4.
func (f *findings) addressType(t discoveryv1.AddressType) (is4 bool) {
	if t != discoveryv1.AddressTypeIPv4 && t != discoveryv1.AddressTypeIPv6 {
		f.add("addressType", string(t), "is not a type of addresses", "write IPv4 or IPv6")
	}
	return t == discoveryv1.AddressTypeIPv4
}

// endpoints leaves out those without an address, and those whose address cannot be
// used.
func (f *findings) endpoints(es *discoveryv1.EndpointSlice, is4 bool) []lb.Endpoint {
	out := make([]lb.Endpoint, 0, len(es.Endpoints))
	for i := range es.Endpoints {
		if e, ok := f.endpoint(i, is4, es); ok {
			out = append(out, e)
		}
	}
	return out
}

// endpoint returns an endpoint by its first address, the only one that proxies
// use; ok is false where there is none. The others are checked, too: the API server
// refuses any of them.
func (f *findings) endpoint(i int, is4 bool, es *discoveryv1.EndpointSlice) (out lb.Endpoint, ok bool) {
	e := &es.Endpoints[i]
	for j, value := range e.Addresses {
		addr := f.endpointAddress(i, j, is4, value)
		if j == 0 {
			out.Addr = addr
		}
	}
	out.Ready = isTrue(e.Conditions.Ready, true)
	out.Serving = isTrue(e.Conditions.Serving, true)
	out.Terminating = isTrue(e.Conditions.Terminating, false)
	out.Where, out.Pod = topology(e).Share(), podOf(es, e)
	return out, out.Addr.IsValid()
}

// topology returns where an endpoint is and whom it is for.
func topology(e *discoveryv1.Endpoint) (t lb.Topology) {
	if e.NodeName != nil {
		t.Node = *e.NodeName
	}
	if e.Zone != nil {
		t.Zone = *e.Zone
	}
	if e.Hints != nil {
		t.ZoneHints = names(e.Hints.ForZones, func(z discoveryv1.ForZone) string { return z.Name })
		t.NodeHints = names(e.Hints.ForNodes, func(n discoveryv1.ForNode) string { return n.Name })
	}
	return t
}

// podOf returns the name of the Pod that an endpoint is, "" where the slice does not say.
func podOf(es *discoveryv1.EndpointSlice, e *discoveryv1.Endpoint) string {
	if to := e.TargetRef; to != nil && to.Kind == "Pod" && (to.Namespace == "" || to.Namespace == es.Namespace) {
		return to.Name
	}
	return ""
}

// names joins the names of hints.
func names[T any](hints []T, name func(T) string) lb.Names {
	if len(hints) == 1 { // as nearly all have
		return lb.Names(name(hints[0]))
	}
	var all []string
	for _, h := range hints {
		all = append(all, name(h))
	}
	return lb.Names(strings.Join(all, ","))
}

// endpointAddress parses an address of endpoint i. The name of its field is made
// only where it is needed: there are a hundred thousand of them.
func (f *findings) endpointAddress(i, j int, is4 bool, value string) netip.Addr {
	addr, ok := (&findings{}).unicast("", value)
	if ok && addr.Is4() == is4 {
		return addr
	}
	field := fmt.Sprintf("endpoints[%d].addresses[%d]", i, j)
	if _, ok = f.unicast(field, value); ok {
		f.add(field, value, "is not of the addressType of the slice", "move it to a slice of its own family")
	}
	return netip.Addr{}
}

// isTrue returns a condition, or what it means where nothing is said.
func isTrue(b *bool, unsaid bool) bool {
	if b == nil {
		return unsaid
	}
	return *b
}
