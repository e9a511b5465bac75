package lb

import (
	"fmt"
	"reflect"
	"testing"
)

// Many Services are looked for by several goroutines: each finds what it would alone.
func TestManyServicesAreFoundAsOneByOne(t *testing.T) {
	const n = 10 * atATime
	st, names := NewState(), []ServiceName{}
	st.cacheFrom = 5
	for i := range n {
		name := ServiceName{"default", fmt.Sprint("web-", i)}
		svc := service(name, fmt.Sprintf("172.16.%d.%d", i/256, i%256))
		if i%7 == 0 {
			svc.TableSize = largestTable(0) + 1 // too large
		}
		st.Apply(services(svc))
		st.Apply(withSlices(tenEndpoints(name, i+1)))
		names = append(names, name)
	}
	for range 2 { // then from what is cached
		want := map[ServiceName][]Frontend{}
		for _, name := range names {
			want[name] = st.Frontends(name)
		}
		problems := st.Problems()
		clear(st.oversized)
		names = append(names, ServiceName{"default", "unknown"})
		all := st.FrontendsOfEach(names)
		for i, name := range names {
			if !reflect.DeepEqual(want[name], all[i]) {
				t.Fatalf("%s has %v, and one by one %v", name, all[i], want[name])
			}
		}
		if len(problems) == 0 || !reflect.DeepEqual(problems, st.Problems()) {
			t.Errorf("%d problems, and %d one by one", len(st.Problems()), len(problems))
		}
		names = names[:n]
		for _, name := range names {
			st.Apply(withSlices(tenEndpoints(name, n+1)))
		}
	}
}
