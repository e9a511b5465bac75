package load

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/headgate/headgate/pkg/traffic/result"
	"github.com/headgate/headgate/pkg/traffic/serve"
)

// The generator against servers of which is known what they do. Where a test
// gives an error, it is this: counts are exact; times are never shorter than
// they should be, and longer by what a busy machine adds, for which there is
// slack.
const slack = 150 * time.Millisecond

func TestARateIsKeptExactly(t *testing.T) {
	_, targets := mustServe(t, serve.Options{}, "a")
	for _, kind := range []Kind{Connect, RR, UDP, SendTo, HTTP} {
		run := mustRun(t, Spec{Kind: kind, Targets: targets, Rate: 1700, Duration: 500 * time.Millisecond, WarmUp: 100 * time.Millisecond})
		wantNoErrors(t, run)
		if run.Due < 849 || run.Due > 851 { // it begins and ends between two arrivals
			t.Errorf("%s: %d operations were due in half a second at 1700 a second, want 850", kind, run.Due)
		}
		due := uint64(0)
		for _, p := range run.TimeLine {
			due += p.Due
		}
		if due != run.Due {
			t.Errorf("%s: the time line has %d due, want %d", kind, due, run.Due)
		}
	}
}

func TestRandomArrivalsHaveTheRateAndTheSpreadOfPoisson(t *testing.T) {
	spec := Spec{Rate: 1000, Senders: 2, Poisson: true, Seed: 7}
	const seconds = 200
	perSecond := make([]float64, seconds)
	for sender := range spec.Senders {
		for a := newArrivals(&spec, sender, 0); a.due() < seconds*1e9; a.advance() {
			perSecond[a.due()/1e9]++
		}
	}
	sum, squares := 0.0, 0.0
	for _, n := range perSecond {
		sum += n
		squares += n * n
	}
	mean := sum / seconds
	within(t, "rate", mean, 1000, 0.02)
	// The count in an interval has its mean as variance.
	within(t, "variance", squares/seconds-mean*mean, 1000, 0.3)
}

func TestEvenArrivalsOfSendersAreEvenTogether(t *testing.T) {
	spec := Spec{Rate: 300, Senders: 3}
	for sender := range spec.Senders {
		a := newArrivals(&spec, sender, 50)
		for k := range 1000 {
			want := 50 + int64(float64(k*spec.Senders+sender)*1e9/300)
			if got := a.due(); got < want-1000 || got > want+1000 {
				t.Fatalf("arrival %d of sender %d is due at %d, want %d", k, sender, got, want)
			}
			a.advance()
		}
	}
}

func TestADelayIsMeasured(t *testing.T) {
	const delay = 20 * time.Millisecond
	_, targets := mustServe(t, serve.Options{Faults: serve.Faults{Delay: delay}}, "a")
	for _, kind := range []Kind{CRR, RR, UDP, SendTo, HTTP} {
		run := mustRun(t, Spec{Kind: kind, Targets: targets, Rate: 200, Duration: 400 * time.Millisecond})
		wantNoErrors(t, run)
		if low := delay - delay/1000; run.Service.Min() < low || run.Latency.Min() < low {
			t.Errorf("%s: a delay of %s is measured as %s (service %s)", kind, delay, run.Latency.Min(), run.Service.Min())
		}
		if p := run.Service.Percentile(50); p > delay+slack {
			t.Errorf("%s: half of the answers take %s with a delay of %s", kind, p, delay)
		}
		if kind == RR && run.Latency.Count() != run.Completed {
			t.Errorf("%d latencies of %d completed", run.Latency.Count(), run.Completed)
		}
	}
}

// The test for coordinated omission: with four connections, a generator that
// waits for answers would have four slow samples to show for a stall.
func TestAStalledServerShowsAsLatencyAndNotAsFewerSamples(t *testing.T) {
	const stall, rate = 300 * time.Millisecond, 1000
	server, targets := mustServe(t, serve.Options{}, "a")
	for _, kind := range []Kind{RR, UDP, SendTo, CRR} {
		run, err := RunWith(context.Background(), Run, Spec{
			Kind: kind, Targets: targets, Rate: rate, Connections: 4, Duration: 800 * time.Millisecond, Timeout: 2 * time.Second,
			Interval: 50 * time.Millisecond,
		}, []Action{{At: 200 * time.Millisecond, Name: "stall", Do: func(context.Context) (string, error) {
			server.Stall(stall)
			return "", nil
		}}})
		if err != nil {
			t.Fatal(err)
		}
		wantNoErrors(t, run)
		if run.Completed < 799 || run.Completed > 801 {
			t.Errorf("%s: %d samples, want 800 as without the stall", kind, run.Completed)
		}
		// Of what was due in the stall, a third waited longer than two thirds
		// of it.
		slow := uint64(0)
		for _, b := range run.Latency.Buckets() {
			if b.UpTo > stall*2/3 {
				slow += b.Count
			}
		}
		if want := uint64(rate * stall.Seconds() / 3 * 0.9); slow < want {
			t.Errorf("%s: %d operations took longer than %s, want at least %d", kind, slow, stall*2/3, want)
		}
		if run.Latency.Max() < stall*9/10 {
			t.Errorf("%s: the longest latency is %s, the stall took %s", kind, run.Latency.Max(), stall)
		}
		// The ones at the end of a queue begin late, since no connection is
		// free: that is the server's doing and not the generator's.
		if p := run.Lateness.Percentile(50); p > stall/3 {
			t.Errorf("%s: the generator says that it is %s late itself", kind, p)
		}
		if len(run.Events) != 1 || run.Events[0].At < 200*time.Millisecond {
			t.Errorf("%s: events are %v", kind, run.Events)
		}
	}
}

func TestEveryDroppedDatagramIsCounted(t *testing.T) {
	_, targets := mustServe(t, serve.Options{Faults: serve.Faults{DropEvery: 10}}, "a")
	run := mustRun(t, Spec{Kind: UDP, Targets: targets, Rate: 400, Duration: 500 * time.Millisecond, Timeout: 400 * time.Millisecond, Connections: 64})
	if want := run.Due / 10; run.Errors[result.Timeout] != want || run.Failed != want {
		t.Errorf("errors of %d requests are %v, want %d timeouts", run.Due, run.Errors, want)
	}
	run = mustRun(t, Spec{Kind: Packets, Targets: targets, Rate: 20_000, Duration: 300 * time.Millisecond})
	low, high := run.Packets.Sent/10-1, run.Packets.Sent/10+1 // the first run left a remainder
	if lost := run.Packets.Sent - run.Packets.Received; lost < low || lost > high || run.Errors[result.Lost] != lost {
		t.Errorf("%d of %d packets are lost (%v), want each tenth", lost, run.Packets.Sent, run.Errors)
	}
	if run.Packets.Unknown != 0 || run.Packets.Reports != 8 {
		t.Errorf("packets are %+v", run.Packets)
	}
}

func TestEveryResetConnectionIsCounted(t *testing.T) {
	_, targets := mustServe(t, serve.Options{Faults: serve.Faults{ResetEvery: 20}}, "a")
	run := mustRun(t, Spec{Kind: RR, Targets: targets, Rate: 1000, Duration: 500 * time.Millisecond, Unchecked: true})
	want := run.Due / 20
	if run.Errors[result.Reset] != want || run.Broken != want || run.Failed != want {
		t.Errorf("of %d requests %v failed, %d connections broken; want %d", run.Due, run.Errors, run.Broken, want)
	}
}

func TestConnectionsBrokenByAnEventAreCountedOnce(t *testing.T) {
	server, targets := mustServe(t, serve.Options{}, "a")
	run, err := RunWith(context.Background(), Run, Spec{
		Kind: RR, Targets: targets, Rate: 500, Connections: 10, Duration: 600 * time.Millisecond,
	}, []Action{{At: 300 * time.Millisecond, Name: "close", Do: func(context.Context) (string, error) {
		return "done", server.Close()
	}}})
	if err != nil {
		t.Fatal(err)
	}
	if run.Broken < 10 || run.Broken > 20 { // one or the other came back just before the port was closed
		t.Errorf("%d connections broken, want 10", run.Broken)
	}
	if run.Errors[result.Refused] < 50 || run.Completed < 50 {
		t.Errorf("%d completed, errors are %v; want about 150 each, completed and refused", run.Completed, run.Errors)
	}
	if run.Events[0].Detail != "done" {
		t.Errorf("events are %v", run.Events)
	}
	failed := uint64(0)
	for _, p := range run.TimeLine {
		if p.At < run.Events[0].At-run.Interval && p.Failed > 0 {
			t.Errorf("%d failed at %s, before the event at %s", p.Failed, p.At, run.Events[0].At)
		}
		failed += p.Failed
	}
	if failed != run.Failed {
		t.Errorf("the time line has %d failed, want %d", failed, run.Failed)
	}
}

func TestWhatNeverBeganIsCounted(t *testing.T) {
	_, targets := mustServe(t, serve.Options{Faults: serve.Faults{Delay: 50 * time.Millisecond}}, "a")
	run := mustRun(t, Spec{Kind: RR, Targets: targets, Rate: 1000, Connections: 1, Duration: 300 * time.Millisecond, Timeout: 100 * time.Millisecond, Unchecked: true})
	if run.Due != 300 || run.Completed > 10 || run.Errors[result.NotStarted] < 280 {
		t.Errorf("%d due, %d completed, errors %v; want 300 due, most of them not started", run.Due, run.Completed, run.Errors)
	}
	if rate := run.PerSecond(); rate > 22 {
		t.Errorf("one connection with 50 ms to an answer makes %v a second, want at most 20", rate)
	}
}

// A run that waits for a server that stalls gets answers in the end, and one that works
// off its backlog has more timeouts than there is time for. Neither depends on how fast
// this machine is.
func TestABoundedRunAlwaysEnds(t *testing.T) {
	const connections, timeouts, stall = 4, 3, 10 * time.Second // warm-up, duration and one timeout are 250 ms
	server, targets := mustServe(t, serve.Options{}, "a")
	for _, kind := range Kinds() {
		for _, rate := range []float64{0, 5000} {
			if kind == Bulk && rate > 0 {
				continue
			}
			server.Stall(stall)
			run := mustRun(t, Spec{
				Kind: kind, Targets: targets, Rate: rate, WarmUp: 50 * time.Millisecond, Duration: 100 * time.Millisecond, Timeout: 100 * time.Millisecond,
				Connections: connections, Unchecked: true,
			})
			if n := run.Errors[result.Timeout]; n > timeouts*connections {
				t.Fatalf("%s at rate %v: %d timeouts, want at most %d on each of %d connections", kind, rate, n, timeouts, connections)
			}
			if kind != Connect && (run.Failed == 0 || run.Completed > 0) { // that needs no server that is awake
				t.Fatalf("%s at rate %v against a server that stalls: %d failed, %d completed", kind, rate, run.Failed, run.Completed)
			}
			server.Stall(0)
		}
	}
}

func TestARunThatIsEndedSaysWhatItMeasured(t *testing.T) {
	_, targets := mustServe(t, serve.Options{}, "a")
	for _, kind := range Kinds() {
		ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
		began := time.Now()
		run, err := Run(ctx, Spec{Kind: kind, Targets: targets, Duration: time.Hour, Interval: time.Minute, Timeout: 10 * time.Second, Ceiling: true}, nil)
		cancel()
		if err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took > 11*time.Second {
			t.Errorf("%s ended after %s, want 0.3 s and the timeout at most", kind, took)
		}
		if !run.Interrupted || run.Done() == 0 || run.Elapsed > 5*time.Second {
			t.Errorf("%s: interrupted %t, done %d in %s", kind, run.Interrupted, run.Done(), run.Elapsed)
		}
		if kind != Packets && run.Failed > 0 {
			t.Errorf("%s: to be ended is no failure: %v", kind, run.Errors)
		}
	}
}

func TestARunThatIsEndedWaitsForWhatIsUnderWay(t *testing.T) {
	const connections, timeout = 4, time.Second
	server, targets := mustServe(t, serve.Options{}, "a")
	server.Stall(time.Hour)
	for _, kind := range []Kind{CRR, UDP, SendTo} {
		ctx, cancel := context.WithCancel(context.Background())
		spec := Spec{Kind: kind, Targets: targets, Connections: connections, Duration: time.Hour, Timeout: timeout, Unchecked: true}
		run, err := Run(ctx, spec, func(counting time.Time) { time.AfterFunc(time.Until(counting)+timeout/3, cancel) })
		cancel()
		if err != nil {
			t.Fatal(err)
		}
		if run.Failed != connections || run.Errors[result.Timeout] != connections || run.Due != connections {
			t.Errorf("%s: %d of %d due failed (%v), want a timeout on each of %d connections", kind, run.Failed, run.Due, run.Errors, connections)
		}
	}
}

func TestTheCeilingMarksWhatIsNearIt(t *testing.T) {
	_, targets := mustServe(t, serve.Options{}, "a")
	run := mustRun(t, Spec{Kind: RR, Targets: targets, Rate: 100, Duration: 200 * time.Millisecond, Ceiling: true})
	if run.Ceiling == nil || run.Ceiling.PerSecond < 500 || run.Limited {
		t.Errorf("100 a second is limited: %t, by %+v", run.Limited, run.Ceiling)
	}
}

func TestActionsAreEvents(t *testing.T) {
	fake := func(ctx context.Context, _ Spec, started func(time.Time)) (result.Run, error) {
		started(time.Now().Add(20 * time.Millisecond))
		time.Sleep(400 * time.Millisecond)
		return result.Run{}, nil
	}
	run, err := RunWith(context.Background(), fake, Spec{}, []Action{
		{At: 200 * time.Millisecond, Name: "late", Do: func(context.Context) (string, error) { return "", errors.New("no") }},
		{At: 10 * time.Millisecond, Name: "early", Do: func(context.Context) (string, error) { return "yes", nil }},
		{At: time.Hour, Name: "never", Do: func(context.Context) (string, error) { return "", nil }},
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(run.Events) != 2 || run.Events[0].Name != "early" || run.Events[0].Detail != "yes" || run.Events[1].Detail != "failed: no" {
		t.Fatalf("events are %+v", run.Events)
	}
	for i, want := range []time.Duration{10 * time.Millisecond, 200 * time.Millisecond} {
		if at := run.Events[i].At; at < want || at > want+slack {
			t.Errorf("event %s is at %s, want %s", run.Events[i].Name, at, want)
		}
	}
}
