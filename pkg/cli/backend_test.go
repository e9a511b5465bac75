package cli

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestWhoHasABackendComesInOrder(t *testing.T) {
	var u users[string]
	u.add("web", []uint32{7, 8})
	u.add("api", []uint32{3, 7})
	u.add("none", nil)
	u.add("dns", []uint32{7, 9})
	u.sort()
	for backend, want := range map[uint32][]string{1: nil, 3: {"api"}, 5: nil, 7: {"web", "api", "dns"}, 8: {"web"}, 9: {"dns"}, 10: nil} {
		if diff := cmp.Diff(want, u.of(backend)); diff != "" {
			t.Errorf("backend %d (-want +got):\n%s", backend, diff)
		}
	}
}
