package plan

import (
	"testing"

	"github.com/headgate/headgate/pkg/lb"
)

func TestAFrontendRefusesWithoutABackendForAnyClient(t *testing.T) {
	for name, tc := range map[string]struct {
		views [lb.NumViews]View
		want  bool
	}{
		"no endpoint is ready":                           {[lb.NumViews]View{}, true},
		"backends for clients outside":                   {[lb.NumViews]View{lb.NumViews - 1: {Table: Table{Size: 1}}}, false},
		"backends on other nodes, and a policy of Local": {[lb.NumViews]View{lb.Internal: {NoLocal: true}}, false},
	} {
		if got := (Frontend{Views: tc.views}).Refuses(); got != tc.want {
			t.Errorf("%s: it refuses is %v, want %v", name, got, tc.want)
		}
	}
}
