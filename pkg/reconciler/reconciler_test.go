package reconciler

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/plan"
)

// fake is a datapath in memory. It notes every call with the time, and fails
// where a test says so.
type fake struct {
	plan.Model
	began time.Time
	mu    sync.Mutex // guards calls and the Model: simulated time orders, but does not synchronize
	calls []string
	ops   []string
	fail  func(call string) error // nil for never
	err   error                   // what Content returns
	grace time.Duration           // how long a grace period takes
	tells time.Duration           // how long telling sockets takes
	any   atomic.Int64            // how often those of any lost backend were told

	room  plan.Sizes   // none for any
	grown atomic.Int64 // how often Reserve has made more of it

	prepares time.Duration // how long a preparation of larger maps takes
	prepared atomic.Int64  // how many there were

	loads  time.Duration // how long it takes to load programs ahead of need
	loaded atomic.Int64  // how often they were
	most   int           // operations of one Apply

	counts   time.Duration // how long a recount takes
	recounts atomic.Int64  // how many there were

	adds time.Duration // how long it takes to add up traffic
	sums atomic.Int64  // how often it was

	freed []string // see removals
}

var _ Datapath = (*fake)(nil)

func (f *fake) call(name string) error {
	f.mu.Lock()
	f.calls = append(f.calls, fmt.Sprintf("%v %s", time.Since(f.began), name))
	f.mu.Unlock()
	if f.fail != nil {
		return f.fail(name)
	}
	return nil
}

func (f *fake) Content() (plan.Content, error) { return f.content(), f.err }
func (f *fake) Attach() error                  { return f.call("attach") }

func (f *fake) Sizes() plan.Sizes {
	if f.room == (plan.Sizes{}) {
		return plan.Sizes{Frontends: math.MaxUint32, Slots: math.MaxUint32, Backends: math.MaxUint32, Services: math.MaxUint32, Addresses: math.MaxUint32}
	}
	return f.room
}

func (f *fake) Reserve(need plan.Sizes) error {
	if !need.Fit(f.Sizes()) {
		if err := f.call("reserve larger"); err != nil {
			return err
		}
		f.grown.Add(1)
		f.room = f.room.AtLeast(need)
	}
	return f.call("reserve")
}

func (f *fake) Prepare(plan.Sizes) error {
	f.prepared.Add(1)
	time.Sleep(f.prepares)
	return f.call("prepare")
}

func (f *fake) Load() error {
	f.loaded.Add(1)
	time.Sleep(f.loads)
	return f.call("load")
}

func (f *fake) Reset() error {
	f.mu.Lock()
	f.Model = plan.Model{}
	f.mu.Unlock()
	return f.call("reset")
}

func (f *fake) Grace() error {
	err := f.call("grace")
	time.Sleep(f.grace)
	return err
}

func (f *fake) Recount() (int, error) {
	f.recounts.Add(1)
	time.Sleep(f.counts)
	return 0, nil
}

func (f *fake) TakeTrafficInTurn() error {
	f.sums.Add(1)
	time.Sleep(f.adds)
	return nil
}

func (f *fake) SetDevices(devices []plan.Device) error {
	return f.call(fmt.Sprintf("%d devices", len(devices)))
}

func (f *fake) DestroySockets(losses []plan.Loss) error {
	defer time.Sleep(f.tells)
	if len(losses) == 0 {
		f.any.Add(1)
	}
	for _, l := range losses {
		if err := f.call("lost " + l.Backend.String()); err != nil {
			return err
		}
	}
	return nil
}

func (f *fake) Apply(ops []plan.Op) (int, error) {
	f.most = max(f.most, len(ops))
	for i, op := range ops {
		if err := f.call(op.String()); err != nil {
			return i, &plan.OpError{Op: op, Err: err}
		}
		f.mu.Lock()
		f.Model.Apply(op)
		f.mu.Unlock()
		f.ops = append(f.ops, op.String())
	}
	return len(ops), nil
}

func (f *fake) content() plan.Content {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.Model.Content()
}

// backends is how many it has.
func (f *fake) backends() int { return len(f.content().Backends) }

// waits counts the grace periods that Apply was asked for.
func (f *fake) waits() (n int) {
	for _, op := range f.ops {
		if op == plan.Grace.String(plan.Grace{}) {
			n++
		}
	}
	return n
}

// taken returns the calls since it was last asked.
func (f *fake) taken() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	calls := f.calls
	f.calls = nil
	return calls
}

// bench is a running reconciler.
type bench struct {
	*Reconciler
	*Inbox
	dp    *fake
	log   *observer.ObservedLogs
	end   func()        // ends Run
	ended chan struct{} // is closed when it has ended
}

// inBubble runs a test with a reconciler in simulated time.
func inBubble(t *testing.T, dp *fake, test func(t *testing.T, b *bench)) {
	t.Helper()
	inBubbleOf(t, plan.Sizes{}, dp, test)
}

// inBubbleOf does so with limits.
func inBubbleOf(t *testing.T, limits plan.Sizes, dp *fake, test func(t *testing.T, b *bench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		core, log := observer.New(zapcore.InfoLevel)
		dp.began = time.Now()
		inbox := NewInbox(nil)
		r, err := New(zap.New(core), inbox, dp, limits)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		b := &bench{Reconciler: r, Inbox: inbox, dp: dp, log: log, end: cancel, ended: make(chan struct{})}
		go func() {
			defer close(b.ended)
			if err := r.Run(ctx); err != nil {
				t.Error(err)
			}
		}()
		test(t, b)
		cancel()
		<-b.ended // what it does beside the loop ends, too
	})
}

// begin gives the reconciler all that it needs to start with.
func (b *bench) begin(u lb.Update) {
	b.SetNodeAddresses(map[netip.Addr]plan.AddressKind{netip.MustParseAddr("192.0.2.1"): plan.NodeAddress})
	b.Update(u)
	synctest.Wait()
}

// pass lets simulated time pass, until nothing happens at its end.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// web is a Service default/web-N with an endpoint 10.244.N.E for each e.
func web(n byte, endpoints ...byte) lb.Update {
	name := fmt.Sprintf("web-%d", n)
	service := lb.ServiceName{Namespace: "default", Name: name}
	slice := lb.SliceName{Namespace: "default", Name: name}
	s := &lb.Slice{SliceName: slice, Service: name, Ports: []lb.SlicePort{{Protocol: lb.TCP, Port: 8080}}}
	for _, e := range endpoints {
		s.Endpoints = append(s.Endpoints, lb.Endpoint{Addr: netip.AddrFrom4([4]byte{10, 244, n, e}), Ready: true, Serving: true})
	}
	return lb.Update{
		Services: map[lb.ServiceName]*lb.Service{service: {
			ServiceName: service,
			ClusterIPs:  []netip.Addr{netip.AddrFrom4([4]byte{10, 96, 0, n})},
			Ports:       []lb.ServicePort{{Protocol: lb.TCP, Port: 80}},
		}},
		Slices: map[lb.SliceName]*lb.Slice{slice: s},
	}
}

// without is the end of a Service.
func without(n byte) lb.Update {
	u := web(n)
	for name := range u.Services {
		u.Services[name] = nil
	}
	for name := range u.Slices {
		u.Slices[name] = nil
	}
	return u
}

func want(t *testing.T, what string, want, got any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func TestNothingIsDoneBeforeTheFirstPictureIsWhole(t *testing.T) {
	inBubble(t, &fake{}, func(t *testing.T, b *bench) {
		b.Update(web(1, 1))
		pass(time.Minute)
		want(t, "without addresses", 0, len(b.dp.calls))
		b.SetNodeAddresses(map[netip.Addr]plan.AddressKind{})
		synctest.Wait()
		want(t, "with both", []string{
			"1m0s reserve",
			"1m0s put backend 1 10.244.1.1:8080/TCP",
			"1m0s put service 1 default/web-1/TCP",
			"1m0s put frontend 10.96.0.1:80/TCP kind ClusterIP service 1 internal id1+1 external id1+1",
			"1m0s put address 10.96.0.1 service",
			"1m0s attach",
		}, b.dp.taken())
		if !b.isReady() {
			t.Error("not ready")
		}
	})
	inBubble(t, &fake{}, func(t *testing.T, b *bench) {
		b.SetNodeAddresses(map[netip.Addr]plan.AddressKind{})
		pass(time.Minute)
		want(t, "without Services", 0, len(b.dp.calls))
	})
}

func TestWhatFailsIsTriedAgainEverLessOften(t *testing.T) {
	for _, failing := range []string{"reserve", "attach"} {
		t.Run(failing, func(t *testing.T) {
			dp := &fake{fail: func(call string) error {
				if call == failing {
					return errors.New("out of order")
				}
				return nil
			}}
			inBubble(t, dp, func(t *testing.T, b *bench) {
				b.begin(lb.Update{})
				pass(2 * time.Minute)
				if b.isReady() {
					t.Error("ready although it fails")
				}
				var tries []string
				for _, entry := range b.log.FilterMessage("apply changes, will try again").All() {
					tries = append(tries, entry.Time.Sub(dp.began).String())
				}
				want(t, "tries", []string{"0s", "100ms", "300ms", "700ms", "1.5s", "3.1s", "6.3s", "12.7s", "25.5s", "51.1s", "1m21.1s", "1m51.1s"}, tries)

				dp.fail = nil
				b.Update(web(1, 1))
				synctest.Wait()
				if !b.isReady() {
					t.Error("a change is not tried at once")
				}
				calls := len(dp.calls)
				pass(time.Hour)
				want(t, "calls after success", calls, len(dp.calls))
			})
		})
	}
}

// What the kernel refuses at the start no second try mends; later on what is in force stays.
func TestAnAgentEndsWithProgramsThatTheKernelRefuses(t *testing.T) {
	refusal := fmt.Errorf("load program connect4: %w", errors.ErrUnsupported)
	for _, readyBefore := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			dp, inbox := &fake{began: time.Now()}, NewInbox(nil)
			var refuses atomic.Bool
			refuses.Store(!readyBefore)
			dp.fail = func(call string) error {
				if call == "attach" && refuses.Load() {
					return refusal
				}
				return nil
			}
			r, err := New(zap.NewNop(), inbox, dp, plan.Sizes{})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			ended := make(chan error, 1)
			go func() { ended <- r.Run(ctx) }()
			inbox.SetNodeAddresses(map[netip.Addr]plan.AddressKind{})
			inbox.Update(web(1, 1))
			pass(time.Minute)
			if !readyBefore {
				want(t, "ready", false, r.isReady())
				want(t, "error", refusal.Error(), fmt.Sprint(<-ended))
				return
			}
			refuses.Store(true)
			inbox.Update(web(1, 1, 2))
			pass(time.Minute)
			cancel()
			want(t, "error of one that was ready", "<nil>", fmt.Sprint(<-ended))
		})
	}
}

func TestTheBackOffStartsAnewAfterSuccessAndIsNotDrivenByChanges(t *testing.T) {
	var broken atomic.Bool
	broken.Store(true)
	dp := &fake{fail: func(call string) error {
		if broken.Load() && call == "reserve" {
			return errors.New("out of order")
		}
		return nil
	}}
	inBubble(t, dp, func(t *testing.T, b *bench) {
		b.begin(lb.Update{})
		for n := range byte(50) {
			b.Update(web(n, 1))
			synctest.Wait()
		}
		broken.Store(false)
		pass(firstRetry)
		if !b.isReady() {
			t.Error("50 changes have put off the next try")
		}
		broken.Store(true)
		b.Update(web(1, 2))
		synctest.Wait()
		broken.Store(false)
		dp.taken()
		pass(firstRetry)
		want(t, "calls", []string{
			"200ms reserve",
			"200ms put backend 51 10.244.1.2:8080/TCP",
			"200ms put frontend 10.96.0.1:80/TCP kind ClusterIP service 2 internal id51+1 external id51+1",
			"200ms attach",
			"200ms lost 10.244.1.1:8080/TCP",
		}, dp.taken())
	})
}

func TestWhatIsInForceIsTheSameHoweverOftenCallsFail(t *testing.T) {
	var inForce []map[string][]string
	story := func(_ *testing.T, b *bench) {
		inForce = nil
		b.begin(web(1, 1, 2))
		pass(time.Hour)
		for _, u := range []lb.Update{web(2, 1, 2, 3), web(1, 2), without(2), web(1, 2, 3), web(2, 9), without(1)} {
			b.Update(u)
			pass(time.Hour)
			inForce = append(inForce, backendsOf(b.dp.content()))
		}
	}
	inBubble(t, &fake{}, story)
	plain := inForce

	chance := rand.New(rand.NewPCG(1, 2))
	failing := &fake{fail: func(string) error {
		if chance.IntN(4) == 0 {
			return errors.New("out of order")
		}
		return nil
	}}
	inBubble(t, failing, story)
	want(t, "what is in force", plain, inForce)
}
