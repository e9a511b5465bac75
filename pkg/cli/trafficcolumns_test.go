package cli

import (
	"fmt"
	"testing"

	"github.com/headgate/headgate/pkg/datapath"
)

// What goes to a Service or a backend and what comes from it are not mistaken for each other.
func TestColumnsOfTrafficSayWhichWayItGoes(t *testing.T) {
	traffic := datapath.Traffic{BytesTo: 1, BytesFrom: 2, PacketsTo: 3, PacketsFrom: 4}
	wantTraffic(t, services.columns, service{Traffic: traffic})
	wantTraffic(t, backends.columns, backend{Load: datapath.Load{Traffic: traffic}})
}

func wantTraffic[T any](t *testing.T, columns []column[T], one T) {
	t.Helper()
	want := map[string]string{"BYTES TO": "1 B", "BYTES FROM": "2 B", "PACKETS TO": "3", "PACKETS FROM": "4"}
	for _, c := range columns {
		if cell := want[c.title]; cell != "" {
			if got := fmt.Sprint(c.of(one)); got != cell {
				t.Errorf("%T: %s is %s, want %s", one, c.title, got, cell)
			}
			delete(want, c.title)
		}
	}
	if len(want) > 0 {
		t.Errorf("%T has no columns %v", one, want)
	}
}
