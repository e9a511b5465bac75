package convert

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/headgate/headgate/pkg/lb"
)

// slice returns a plain good EndpointSlice, as altered.
func slice(alter ...func(*discoveryv1.EndpointSlice)) *discoveryv1.EndpointSlice {
	es := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web-x1",
			Labels: map[string]string{discoveryv1.LabelServiceName: "web"}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: new("http"), Port: new(int32(8080))}},
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{"10.244.1.1"}}},
	}
	for _, a := range alter {
		a(es)
	}
	return es
}

func TestSliceKeepsWhatMattersWithDefaultsResolved(t *testing.T) {
	got, err := Slice(slice(func(es *discoveryv1.EndpointSlice) {
		es.Ports = []discoveryv1.EndpointPort{
			{Name: new("http"), Port: new(int32(8080))},
			{Name: new("dns"), Port: new(int32(5353)), Protocol: new(corev1.ProtocolUDP)},
			{Name: nil, Port: new(int32(1))},
			{Name: new("all")},
		}
		es.Endpoints = []discoveryv1.Endpoint{
			{Addresses: []string{"10.244.1.1", "10.244.1.9"}, TargetRef: &corev1.ObjectReference{Kind: "Pod", Namespace: "default", Name: "web-1"}},
			{Addresses: []string{"10.244.1.2"}, NodeName: new("node-a"), Zone: new("zone-a"),
				Conditions: discoveryv1.EndpointConditions{Ready: new(false), Serving: new(false), Terminating: new(true)},
				Hints: &discoveryv1.EndpointHints{
					ForZones: []discoveryv1.ForZone{{Name: "zone-a"}, {Name: "zone-b"}},
					ForNodes: []discoveryv1.ForNode{{Name: "node-a"}}}},
			{},
		}
	}))
	if err != nil {
		t.Fatal(err)
	}
	want := &lb.Slice{
		SliceName: lb.SliceName{Namespace: "default", Name: "web-x1"},
		Service:   "web",
		Ports:     []lb.SlicePort{{Name: "http", Protocol: lb.TCP, Port: 8080}, {Name: "dns", Protocol: lb.UDP, Port: 5353}},
		Endpoints: []lb.Endpoint{
			{Addr: netip.MustParseAddr("10.244.1.1"), Pod: "web-1", Ready: true, Serving: true},
			{Addr: netip.MustParseAddr("10.244.1.2"), Terminating: true,
				Where: lb.Topology{Node: "node-a", Zone: "zone-a", ZoneHints: "zone-a,zone-b", NodeHints: "node-a"}.Share()},
		},
	}
	if diff := cmp.Diff(want, got, compareAddrs); diff != "" {
		t.Error(diff)
	}
}

func TestSlicesThatNoProxyUsesAreNothing(t *testing.T) {
	for _, tc := range []struct {
		name  string
		alter func(*discoveryv1.EndpointSlice)
	}{
		{"without the label that names the Service", func(es *discoveryv1.EndpointSlice) { es.Labels = nil }},
		{"of a headless Service", func(es *discoveryv1.EndpointSlice) { es.Labels[corev1.IsHeadlessService] = "" }},
		{"of host names", func(es *discoveryv1.EndpointSlice) {
			es.AddressType, es.Endpoints[0].Addresses[0] = discoveryv1.AddressTypeFQDN, "web.example"
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got, err := Slice(slice(tc.alter)); got != nil || err != nil {
				t.Errorf("got %v, %v, want nothing", got, err)
			}
		})
	}
}

func address(a ...string) func(*discoveryv1.EndpointSlice) {
	return func(es *discoveryv1.EndpointSlice) { es.Endpoints[0].Addresses = a }
}

func TestSlicesOfWhichNothingCanBeUsedAreRefused(t *testing.T) {
	const unicast = "; write a unicast address that other nodes can reach"
	for _, tc := range []struct {
		name  string
		alter func(*discoveryv1.EndpointSlice)
		want  string
	}{
		{"address that is none", address("pod-1"), `endpoints[0].addresses[0] "pod-1": is not an IP address; write an IPv4 or IPv6 address, such as "192.0.2.1" or "2001:db8::1"`},
		{"address of the other family", address("fd00::1"), `endpoints[0].addresses[0] "fd00::1": is not of the addressType of the slice; move it to a slice of its own family`},
		{"unspecified", address("0.0.0.0"), `endpoints[0].addresses[0] "0.0.0.0": is the unspecified address` + unicast},
		{"loopback", address("127.0.0.53"), `endpoints[0].addresses[0] "127.0.0.53": is a loopback address` + unicast},
		{"link-local", address("169.254.169.254"), `endpoints[0].addresses[0] "169.254.169.254": is a link-local address` + unicast},
		{"multicast", address("224.0.0.251"), `endpoints[0].addresses[0] "224.0.0.251": is a multicast address` + unicast},
		{"port out of range", func(es *discoveryv1.EndpointSlice) { es.Ports[0].Port = new(int32(70000)) }, `ports[0].port "70000": is out of range; give it a port from 1 to 65535`},
		{"port 0", func(es *discoveryv1.EndpointSlice) { es.Ports[0].Port = new(int32(0)) }, `ports[0].port "0": is out of range; give it a port from 1 to 65535`},
		{"unknown protocol", func(es *discoveryv1.EndpointSlice) { es.Ports[0].Protocol = new(corev1.Protocol("ICMP")) }, `ports[0].protocol "ICMP": is not a protocol of Services; write TCP, UDP or SCTP`},
		{"unknown address type", func(es *discoveryv1.EndpointSlice) { es.AddressType = "ipv4" }, `addressType "ipv4": is not a type of addresses; write IPv4 or IPv6`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := Slice(slice(tc.alter))
			wantProblems(t, got == nil, err, "EndpointSlice default/web-x1: "+tc.want)
		})
	}
}

func TestWhatOfASliceCannotBeUsedTakesNothingElseAway(t *testing.T) {
	more := func(addresses ...string) func(*discoveryv1.EndpointSlice) {
		return func(es *discoveryv1.EndpointSlice) {
			es.Endpoints = append(es.Endpoints, discoveryv1.Endpoint{Addresses: addresses})
		}
	}
	const unicast = "; write a unicast address that other nodes can reach"
	for _, tc := range []struct {
		name, want string
		alter      func(*discoveryv1.EndpointSlice)
	}{
		{"a garbage address", `endpoints[1].addresses[0] "pod-1": is not an IP address; write an IPv4 or IPv6 address, such as "192.0.2.1" or "2001:db8::1"`, more("pod-1")},
		{"the metadata service", `endpoints[1].addresses[0] "169.254.169.254": is a link-local address` + unicast, more("169.254.169.254")},
		{"loopback", `endpoints[1].addresses[0] "127.0.0.1": is a loopback address` + unicast, more("127.0.0.1")},
		{"another family", `endpoints[1].addresses[0] "fd00::1": is not of the addressType of the slice; move it to a slice of its own family`, more("fd00::1")},
		{"a second address", `endpoints[0].addresses[1] "x": is not an IP address; write an IPv4 or IPv6 address, such as "192.0.2.1" or "2001:db8::1"`, address("10.244.1.1", "x")},
		{"port 0", `ports[1].port "0": is out of range; give it a port from 1 to 65535`, func(es *discoveryv1.EndpointSlice) {
			es.Ports = append(es.Ports, discoveryv1.EndpointPort{Name: new("a"), Port: new(int32(0))})
		}},
		{"the name of another port", `ports[1].name "http": is the name of ports[0] too; give it another name`,
			func(es *discoveryv1.EndpointSlice) { es.Ports = append(es.Ports, es.Ports[0]) }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := Slice(slice(tc.alter))
			wantProblems(t, true, err, "EndpointSlice default/web-x1: "+tc.want)
			if got == nil || len(got.Endpoints) != 1 || len(got.Ports) != 1 || got.Endpoints[0].Addr != netip.MustParseAddr("10.244.1.1") {
				t.Errorf("got %+v, want the good endpoint and port", got)
			}
		})
	}
}

// A Service that is scaled to zero has a slice still.
func TestASliceWithoutEndpointsOrPortsIsOne(t *testing.T) {
	got, err := Slice(slice(func(es *discoveryv1.EndpointSlice) { es.Endpoints, es.Ports = nil, nil }))
	if got == nil || err != nil || len(got.Endpoints) > 0 || len(got.Ports) > 0 {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestOfManyProblemsTenAreToldAndTheRestCounted(t *testing.T) {
	got, err := Slice(slice(func(es *discoveryv1.EndpointSlice) {
		for range 100_000 {
			es.Endpoints = append(es.Endpoints, discoveryv1.Endpoint{Addresses: []string{"x"}})
		}
	}))
	problems := Problems(err)
	if got == nil || len(problems) != lb.MostProblems+1 {
		t.Fatalf("got %v with %d problems", got, len(problems))
	}
	if last, want := problems[lb.MostProblems].Error(), "EndpointSlice default/web-x1: has 99990 more problems; mend the others first"; last != want {
		t.Errorf("the last problem is %q, want %q", last, want)
	}
}

func TestIPv6SlicesTakeIPv6(t *testing.T) {
	got, err := Slice(slice(address("fd00:244::1"), func(es *discoveryv1.EndpointSlice) { es.AddressType = discoveryv1.AddressTypeIPv6 }))
	if err != nil || got.Endpoints[0].Addr != netip.MustParseAddr("fd00:244::1") {
		t.Errorf("got %v, %v", got, err)
	}
}

func TestNodeHasAZoneWhereItIsLabelled(t *testing.T) {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-a"}}
	for _, zone := range []string{"", "zone-a"} {
		if zone != "" {
			n.Labels = map[string]string{"topology.kubernetes.io/zone": zone}
		}
		got, err := Node(n)
		if err != nil || *got != (lb.Node{Name: "node-a", Zone: zone}) {
			t.Errorf("got %+v, %v", got, err)
		}
	}
}

func TestNodeHasItsPrimaryAddressesAndWhetherItIsLeaving(t *testing.T) {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-a"}}
	for kind, addresses := range map[corev1.NodeAddressType][]string{
		corev1.NodeHostName: {"192.0.2.9"}, corev1.NodeInternalIP: {"192.0.2.1", "192.0.2.2", "2001:db8::1"},
	} {
		for _, a := range addresses {
			n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: kind, Address: a})
		}
	}
	want := lb.Node{Name: "node-a", IP4: netip.MustParseAddr("192.0.2.1"), IP6: netip.MustParseAddr("2001:db8::1")}
	if got, err := Node(n); err != nil || *got != want {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
	want.Leaving = true
	tainted, deleted := n.DeepCopy(), n.DeepCopy()
	tainted.Spec.Taints = []corev1.Taint{{Key: "ToBeDeletedByClusterAutoscaler"}}
	now := metav1.Now()
	deleted.DeletionTimestamp = &now
	for name, n := range map[string]*corev1.Node{"tainted": tainted, "deleted": deleted} {
		if got, err := Node(n); err != nil || *got != want {
			t.Errorf("%s: got %+v, %v, want %+v", name, got, err, want)
		}
	}
}

func TestNodeHasPodRanges(t *testing.T) {
	const notAPrefix, remedy = "is not a prefix", `write one in CIDR notation, such as "192.0.2.0/24" or "2001:db8::/32"`
	for _, tc := range []struct {
		name, one string
		all       []string
		want      []netip.Prefix
		problems  []lb.Problem
	}{
		{name: "none"},
		{name: "of both families", one: "10.244.2.0/24", all: []string{"10.244.2.0/24", "fd00:244:2::/64"},
			want: []netip.Prefix{netip.MustParsePrefix("10.244.2.0/24"), netip.MustParsePrefix("fd00:244:2::/64")}},
		{name: "of the older field alone", one: "10.244.2.0/24", want: []netip.Prefix{netip.MustParsePrefix("10.244.2.0/24")}},
		{name: "with bits beyond its length", all: []string{"10.244.2.7/24"}, want: []netip.Prefix{netip.MustParsePrefix("10.244.2.0/24")}},
		{name: "some cannot be used", all: []string{"10.244.2.0", "", "::ffff:10.244.2.0/120", "10.244.2.0/33", "10.244.3.0/24"},
			want: []netip.Prefix{netip.MustParsePrefix("10.244.3.0/24")},
			problems: []lb.Problem{
				{Object: "Node node-a", Field: "spec.podCIDRs[0]", Value: "10.244.2.0", Reason: notAPrefix, Remedy: remedy},
				{Object: "Node node-a", Field: "spec.podCIDRs[1]", Reason: notAPrefix, Remedy: remedy},
				{Object: "Node node-a", Field: "spec.podCIDRs[2]", Value: "::ffff:10.244.2.0/120", Reason: notAPrefix, Remedy: remedy},
				{Object: "Node node-a", Field: "spec.podCIDRs[3]", Value: "10.244.2.0/33", Reason: notAPrefix, Remedy: remedy},
			}},
		{name: "of the older field cannot be used", one: "pods",
			problems: []lb.Problem{{Object: "Node node-a", Field: "spec.podCIDR", Value: "pods", Reason: notAPrefix, Remedy: remedy}}},
	} {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-a"}, Spec: corev1.NodeSpec{PodCIDR: tc.one, PodCIDRs: tc.all}}
		got, err := PodRanges(n)
		if diff := cmp.Diff(tc.want, got, cmpopts.EquateComparable(netip.Prefix{})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.name, diff)
		}
		if diff := cmp.Diff(tc.problems, Problems(err)); diff != "" {
			t.Errorf("%s: problems (-want +got):\n%s", tc.name, diff)
		}
	}
}

func TestProblemsReadsAnyError(t *testing.T) {
	if got := Problems(nil); got != nil {
		t.Errorf("got %v for no error", got)
	}
	got := Problems(errors.Join(lb.Problem{Reason: "a"}, errors.New("b")))
	if diff := cmp.Diff([]lb.Problem{{Reason: "a"}, {Reason: "b"}}, got); diff != "" {
		t.Error(diff)
	}
}

func TestOnlyAPodOfTheNamespaceIsAPod(t *testing.T) {
	for name, ref := range map[string]corev1.ObjectReference{
		"a node":            {Kind: "Node", Name: "web-1"},
		"another namespace": {Kind: "Pod", Namespace: "other", Name: "web-1"},
	} {
		got, err := Slice(slice(func(es *discoveryv1.EndpointSlice) { es.Endpoints[0].TargetRef = &ref }))
		if err != nil || got.Endpoints[0].Pod != "" {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}
