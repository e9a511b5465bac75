package convert

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/headgate/headgate/pkg/lb"
)

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
			f.add(annotation(AnnotationWeights), item, "does not begin with the address of an endpoint"+stays,
				`write addresses with weights, such as "10.0.0.1=5,10.0.0.2=0"`)
			continue
		}
		weight, ok := f.weight(annotation(AnnotationWeights), strings.TrimSpace(number), stays)
		if ok {
			out = append(out, lb.EndpointWeight{Addr: addr.Unmap(), Weight: weight})
		}
	}
	slices.SortFunc(out, func(a, b lb.EndpointWeight) int { return a.Addr.Compare(b.Addr) })
	for i := 1; i < len(out); i++ {
		if out[i].Addr == out[i-1].Addr {
			f.add(annotation(AnnotationWeights), out[i].Addr.String(), "is there twice"+stays, "leave it there once")
		}
	}
	return out
}

// weight reads a weight. otherwise ends the reason of the problem where it is none.
func (f *findings) weight(field, value, otherwise string) (weight uint32, ok bool) {
	n, err := strconv.ParseUint(value, 10, 32)
	if err != nil || n > lb.MaxWeight {
		f.add(field, value, "is not a weight"+otherwise,
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
	weight, ok := f.weight(field, value, "; the former one stays in force, and an agent that starts leaves it out")
	out.KeepWeights = !ok
	if !ok {
		return
	}
	for i := range out.Endpoints {
		out.Endpoints[i].Weight, out.Endpoints[i].Drained = weight, weight == 0
	}
}
