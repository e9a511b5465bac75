package lb

import "testing"

func TestBackendsToWhichOtherNodesCarryAreKnown(t *testing.T) {
	svc := &Service{ServiceName: webName, ClusterIPs: addrs("172.16.0.1"), LoadBalancerIPs: addrs("203.0.113.9"), Ports: []ServicePort{{"http", TCP, 80, 0}}, Policy: Policy{Forwarding: DSR}}
	st := NewState()
	slice := mustSlice(t, "1", "10.0.0.1 ready on="+here.Name+"; 10.0.0.2 ready on=node-2")
	st.Apply(Update{Node: &here, Services: map[ServiceName]*Service{webName: svc}, Slices: map[SliceName]*Slice{slice.SliceName: slice}})
	drained := func(word string) Drained {
		d, err := ParseDrained([]string{word})
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	port := AddrPort{Addr: addrs("10.0.0.1")[0], Port: 8080, Protocol: TCP}
	for d, want := range map[string]int{port.String(): 1, "10.0.0.2:8080/TCP": 0, "node/" + here.Name: 1, "node/node-2": 0} {
		if got := st.CarriedHere(drained(d)); len(got) != want || want > 0 && got[0] != webName.String()+":http" {
			t.Errorf("drain of %s takes what is carried here of %q, want %d", d, got, want)
		}
	}
	other := *svc
	other.Forwarding = SNAT
	st.Apply(Update{Services: map[ServiceName]*Service{webName: &other}})
	if got := st.CarriedHere(drained("node/" + here.Name)); len(got) > 0 {
		t.Errorf("of a Service that is not carried: %q", got)
	}
}
