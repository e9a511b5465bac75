package load

import (
	"context"
	"testing"
	"time"

	"github.com/headgate/headgate/pkg/traffic/result"
	"github.com/headgate/headgate/pkg/traffic/serve"
)

// spacing is how far apart connections are below: what is known of a change is
// known to that, and to what a busy machine adds.
const spacing = time.Millisecond

// A server that comes in the place of another one at a known time.
func TestAChangeOfBackendsIsSeenWhenItHappens(t *testing.T) {
	const at = 300 * time.Millisecond
	for _, kind := range []Kind{CRR, UDP} {
		server, targets := mustServe(t, serve.Options{}, "old")
		run, err := RunWith(context.Background(), Run, Spec{
			Kind: kind, Targets: targets, Rate: float64(time.Second / spacing), PerSocket: 1, WarmUp: 100 * time.Millisecond, Duration: 600 * time.Millisecond, Mark: at,
		}, []Action{{At: at, Name: "replace", Do: func(context.Context) (string, error) {
			return "", server.Rename("old", "new")
		}}})
		if err != nil {
			t.Fatal(err)
		}
		wantNoErrors(t, run)
		run.SetDrill("replace", run.Events[0], "old", "new", 10*time.Second)
		d := run.Drill
		if d.LastOld == nil || d.FirstNew == nil {
			t.Fatalf("%s: %s, want connections to both", kind, d)
		}
		if *d.LastOld > slack || *d.FirstNew > spacing+slack || *d.FirstNew < *d.LastOld-slack {
			t.Errorf("%s: %s, want both within %s of the change", kind, d, spacing+slack)
		}
		if old := run.Backends[1]; old.First != nil && *old.First < at {
			t.Errorf("%s: the first connection to the old server from %s on was begun at %s", kind, at, *old.First)
		}
		if d.Failed > 0 || d.Slow > 0 || d.Broken > 0 {
			t.Errorf("%s: %s, want nothing failed, slow or broken", kind, d)
		}
	}
}

// A server that ends at a known time: what fails from then on is counted from then on.
func TestTheLastFailureIsDatedByWhenItWasDue(t *testing.T) {
	server, targets := mustServe(t, serve.Options{}, "old")
	const at = 200 * time.Millisecond
	run, err := RunWith(context.Background(), Run, Spec{
		Kind: CRR, Targets: targets, Rate: float64(time.Second / spacing), Duration: 500 * time.Millisecond, Timeout: time.Second,
	}, []Action{{At: at, Name: "end", Do: func(context.Context) (string, error) { return "", server.Close() }}})
	if err != nil {
		t.Fatal(err)
	}
	run.SetDrill("end", run.Events[0], "", "", 10*time.Second)
	d := run.Drill
	if want := 500*time.Millisecond - run.Events[0].At; d.LastFailed > want || d.LastFailed < want-5*spacing {
		t.Errorf("the last failure was due %s after the end of the server, want %s, with a connection every %s", d.LastFailed, want, spacing)
	}
	if d.Failed != run.Failed || d.Failed < 200 || run.Errors[result.Refused] < 200 {
		t.Errorf("%d failed, %d of them after the event, errors %v; want about 300, nearly all refused", run.Failed, d.Failed, run.Errors)
	}
}
