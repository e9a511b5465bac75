package reconciler

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/plan"
)

// deviceCalls counts the calls for devices.
func (f *fake) deviceCalls() (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.calls {
		if strings.HasSuffix(c, " devices") {
			n++
		}
	}
	return n
}

func TestADeviceThatRefusesIsTriedAgainAndFailsNothingElse(t *testing.T) {
	for _, tc := range []struct {
		name  string
		err   error
		calls int // after a minute
	}{
		{"none refuses", nil, 1},
		{"the kernel cannot", fmt.Errorf("no tcx: %w", errors.ErrUnsupported), 1},
		{"one refuses for ever", errors.New("busy"), 10},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dp := &fake{fail: func(call string) error {
				if strings.HasSuffix(call, " devices") {
					return tc.err
				}
				return nil
			}}
			inBubble(t, dp, func(t *testing.T, b *bench) {
				b.SetDevices([]plan.Device{{Index: 2, Name: "eth0"}})
				synctest.Wait()
				want(t, "calls before the first picture", 0, b.dp.deviceCalls())
				b.begin(web(1, 1, 2))
				if !b.isReady() {
					t.Error("not ready while a device refuses")
				}
				b.Update(web(1, 1)) // something to sweep
				pass(time.Minute)
				if got := b.dp.deviceCalls(); tc.calls == 1 && got != 1 || tc.calls > 1 && (got < tc.calls || got > 2*tc.calls) {
					t.Errorf("%d calls, want about %d", got, tc.calls)
				}
				want(t, "attempts that failed", 0, b.log.FilterMessage("apply changes, will try again").Len())
				want(t, "backends after the sweep", 1, b.dp.backends())
			})
		})
	}
}

// counter is an observer that counts attempts.
type counter int

func (*counter) Problems([]lb.Problem) {}
func (*counter) Force(Force)           {}
func (c *counter) Flushed(Attempt)     { *c++ }

func TestNobodyIsToldOfAnAttemptBeforeTheFirstPictureIsWhole(t *testing.T) {
	inbox := NewInbox(nil)
	r, err := New(zap.NewNop(), inbox, &fake{}, plan.Sizes{})
	if err != nil {
		t.Fatal(err)
	}
	r.due = newDue()
	defer r.due.stop()
	var told counter
	r.Observe(&told)
	inbox.Update(web(1, 1))
	r.gather()
	if err := r.observedFlush(); err != nil || told != 0 {
		t.Errorf("told %d times without addresses, %v", told, err)
	}
	inbox.SetNodeAddresses(map[netip.Addr]plan.AddressKind{})
	r.gather()
	if err := r.observedFlush(); err != nil || told != 1 {
		t.Errorf("told %d times with both, %v", told, err)
	}
}
