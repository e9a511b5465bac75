package datapath_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/headgate/headgate/pkg/datapath"
)

// coarse is more than a tick of the clock of file systems, of which what goes may have the time of what has just come.
const coarse = 50 * time.Millisecond

// Who looks every few seconds does not look at each pin as long as none came or went.
func TestAPinThatGoesAfterALongRestComesBack(t *testing.T) {
	cfg := config(t)
	d := mustOpen(t, cfg)
	mustApply(t, d, someOps()...)
	if err := d.Attach(); err != nil {
		t.Fatal(err)
	}
	for _, pin := range []string{"maps/slots", "links/connect4", "maps", "links"} {
		for range 4 {
			if restored, unpinned, outOfForce := d.Restore(); len(restored) > 0 || unpinned != nil || outOfForce != nil {
				t.Fatalf("at rest %v is restored: %v, %v", restored, unpinned, outOfForce)
			}
		}
		time.Sleep(coarse)
		if err := os.RemoveAll(filepath.Join(cfg.Root, pin)); err != nil {
			t.Fatal(err)
		}
		if restored, unpinned, _ := d.Restore(); !slices.Equal(restored, []string{datapath.RestoredPins}) || unpinned != nil {
			t.Errorf("without %s %v is restored: %v", pin, restored, unpinned)
		}
		if _, err := os.Stat(filepath.Join(cfg.Root, pin)); err != nil {
			t.Errorf("it is gone: %v", err)
		}
		if _, unpinned, outOfForce := d.Restore(); unpinned != nil || outOfForce != nil {
			t.Errorf("looked at again: %v, %v", unpinned, outOfForce)
		}
	}
}
