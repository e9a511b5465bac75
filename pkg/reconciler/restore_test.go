package reconciler

import (
	"errors"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/headgate/headgate/pkg/plan"
)

// fragile is a datapath of which programs are taken away.
type fragile struct {
	fake
	restored []string
}

func (f *fragile) Restore() (restored []string, unpinned, outOfForce error) {
	return f.restored, errors.New("no file system"), errors.New("no cgroup")
}

// onlooker keeps what it was told of programs.
type onlooker struct {
	blind
	force Force
}

func (o *onlooker) Force(f Force) { o.force = f }

func TestWhatIsOutOfForceIsTold(t *testing.T) {
	refuses := errors.New("busy")
	dp := &fragile{restored: []string{"connect4"}}
	dp.fail = func(call string) error {
		if strings.HasSuffix(call, "devices") {
			return refuses
		}
		return nil
	}
	r, err := New(zap.NewNop(), NewInbox(nil), dp, plan.Sizes{})
	if err != nil {
		t.Fatal(err)
	}
	var told onlooker
	r.Observe(&told)
	r.gotUpdate, r.gotAddress, r.devicesChanged = true, true, true
	_ = r.attachDevices() // told of by look
	r.look(time.Now())
	if f := told.force; len(f.Restored) != 1 || f.Unpinned == nil || f.OutOfForce == nil || !errors.Is(f.Devices, refuses) {
		t.Errorf("told %+v", f)
	}
	dp.fail = nil
	_ = r.attachDevices()
	r.look(time.Now())
	if told.force.Devices != nil {
		t.Errorf("told of a device that does not refuse any more: %v", told.force.Devices)
	}
}
