package agent

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/headgate/headgate/pkg/datapath"
	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/metrics"
	"github.com/headgate/headgate/pkg/probe"
	"github.com/headgate/headgate/pkg/source/convert"
)

// bench is a judge that writes down what it is told.
type bench []string

func (b *bench) Judge(_ context.Context, backend lb.AddrPort, eject bool, noRetryFor time.Duration) {
	*b = append(*b, fmt.Sprint(backend, eject, noRetryFor))
}

var probed = lb.AddrPort{Addr: netip.MustParseAddr("198.51.100.1"), Port: 80, Protocol: lb.TCP}

func TestNobodyIsAskedUnlessThatIsAllowedAndHasAnEffect(t *testing.T) {
	for _, cfg := range []Config{{Datapath: datapath.Config{EjectAfter: 3}}, {Convert: convert.Options{Probes: true}}} {
		if newProber(cfg, zap.NewNop(), nil, nil) != nil {
			t.Errorf("backends are asked with --eject-after %d, probes allowed: %v", cfg.Datapath.EjectAfter, cfg.Convert.Probes)
		}
	}
}

func TestWhatProbesSayIsJudgedAndLoggedOnce(t *testing.T) {
	core, logs := observer.New(zap.InfoLevel)
	allowed := []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24")}
	var judged bench
	c := probing(Config{Datapath: datapath.Config{EjectAfter: 3}, ProbePrefixes: allowed}, zap.New(core), &judged, &problems{})
	if c.Failures != 3 || !slices.Equal(c.Allowed, allowed) {
		t.Errorf("asked until %d failures, of %v", c.Failures, c.Allowed)
	}
	for _, err := range []error{nil, errors.New("refused"), errors.New("refused"), nil, nil, errors.New("refused")} {
		c.Notify(t.Context(), probe.Verdict{Backend: probed, Err: err, For: time.Second})
	}
	bad, well := probed.String()+" true 1s", probed.String()+" false 1s"
	if !slices.Equal(judged, bench{well, bad, bad, well, well, bad}) {
		t.Errorf("judged %q", judged)
	}
	var said []string
	for _, l := range logs.All() {
		said = append(said, strings.Fields(l.Message)[1])
	}
	if !slices.Equal(said, []string{"fails", "passes", "fails"}) {
		t.Errorf("logged %q", said)
	}
}

// A prober hears of the addresses that it must not ask, and what it does not ask is told.
func TestAProberIsBoundByWhatUpdatesSay(t *testing.T) {
	core, logs := observer.New(zap.InfoLevel)
	told := make(chan []lb.Problem, 10)
	a := newStatusServer(Config{}, zap.New(core), nil, metrics.New("test"))
	a.problems.count = func(all []lb.Problem) { told <- all }
	newIntake(Config{}, zap.NewNop(), a).update(lb.Update{}) // no prober
	in := newIntake(Config{Datapath: datapath.Config{EjectAfter: 1}, Convert: convert.Options{Probes: true}}, zap.New(core), a)
	p := in.prober
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { p.Run(ctx); close(done) }()
	defer func() { cancel(); <-done }()
	p.SetNode(nil)
	p.SetFrontends(lb.ServiceName{Namespace: "default", Name: "web"}, []lb.Frontend{{
		Policy: lb.Policy{Probe: lb.Probe{Kind: lb.TCPProbe, Interval: time.Hour}}, Views: [lb.NumViews]lb.View{lb.Internal: {Backends: []lb.AddrPort{probed}}},
	}})
	for _, c := range []struct {
		update lb.Update
		want   string // of the problem, "" for none
	}{
		{lb.Update{NodeAddresses: map[string][]netip.Addr{"node-b": {probed.Addr}}}, "another node"},
		{lb.Update{NodeAddresses: map[string][]netip.Addr{"node-b": nil}}, ""},
		{lb.Update{ServiceCIDRs: []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24")}}, "belongs to Services"},
		{lb.Update{NodeAddresses: map[string][]netip.Addr{"node-b": {probed.Addr}}}, "another node"},
		{lb.Update{NodeAddresses: map[string][]netip.Addr{"node-b": nil}}, "belongs to Services"}, // still
		{lb.Update{ServiceCIDRs: []netip.Prefix{}}, ""},
	} {
		in.update(c.update)
		select {
		case all := <-told:
			if len(all) != min(1, len(c.want)) || c.want != "" && !strings.Contains(all[0].Reason, c.want) {
				t.Errorf("problems %v, want %q", all, c.want)
			}
		case <-time.After(20 * time.Second):
			t.Fatalf("told nothing, want %q", c.want)
		}
	}
	if n := logs.FilterMessage("problem").Len(); n != 4 {
		t.Errorf("%d problems are logged, want 4", n)
	}
}
