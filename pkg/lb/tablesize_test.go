package lb

import (
	"fmt"
	"strings"
	"testing"
)

func TestATableIsAsLargeAsItsBackendsAllow(t *testing.T) {
	for _, tc := range []struct {
		backends, asked, want int
		problem               string
	}{
		{1, 16381, 16381, ""},
		{200, 25589, 25589, ""},
		{1, 16411, 0, `Service victim/web: metadata.annotations[headgate.dev/table-size] "16411": is not used: it is more than 16381, the most for 1 backends; ask for 16381 slots, or up to 128 for each backend`},
		{200, 655373, 0, `Service victim/web: metadata.annotations[headgate.dev/table-size] "655373": is not used: it is more than 25600, the most for 200 backends; ask for 16381 slots, or up to 128 for each backend`},
	} {
		st := NewState()
		svc := withExternalIPs(victim, "172.16.0.1", "")
		svc.Policy = Policy{Algorithm: Maglev, TableSize: uint32(tc.asked)}
		var endpoints []string
		for i := range tc.backends {
			endpoints = append(endpoints, fmt.Sprintf("10.0.%d.%d ready", i/250, i%250+1))
		}
		slice := &Slice{SliceName: SliceName{Namespace: "victim", Name: "s"}, Service: "web",
			Ports: []SlicePort{{Name: "http", Protocol: TCP, Port: 80}}, Endpoints: mustEndpoints(t, strings.Join(endpoints, ";"))}
		st.Apply(Update{Services: map[ServiceName]*Service{victim: svc}, Slices: map[SliceName]*Slice{slice.SliceName: slice}})
		mustDiff(t, tc.want, int(st.Frontends(victim)[0].TableSize))
		said := ""
		for _, p := range st.Problems() {
			said += p.Error()
		}
		mustDiff(t, tc.problem, said)
		st.Apply(Update{Services: map[ServiceName]*Service{victim: nil}})
		mustDiff(t, []Problem(nil), st.Problems())
	}
}
