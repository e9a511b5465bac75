package cli

import (
	"testing"
	"time"

	"github.com/headgate/headgate/pkg/datapath"
)

func TestHealthOfABackendSaysWhoAvoidsIt(t *testing.T) {
	for want, l := range map[string]datapath.Load{
		"ok":             {InFlight: 3},
		"2 failed":       {Failures: 2},
		"ejected for 3s": {Failures: 5, Ejected: 3 * time.Second},
		"avoided for 1s by the client that failed last": {Failures: 5, EjectedByOne: time.Second},
	} {
		if got := health(l); got != want {
			t.Errorf("%+v is shown as %q, want %q", l, got, want)
		}
	}
}
