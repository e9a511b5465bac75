package cli

import (
	"io"
	"net/netip"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate/pkg/datapath"
)

func TestWhatHappensToFlowsFollowsFromTwoLooks(t *testing.T) {
	packets := func(state, backend string) *flow {
		return &flow{begins: true, Path: pathPacket, Hook: "in", Protocol: "TCP", From: netip.MustParseAddrPort("192.0.2.9:4711"), To: netip.MustParseAddrPort("203.0.113.1:80"), NowTo: netip.MustParseAddrPort(backend), State: state}
	}
	socket := func(state, from string) *flow {
		return &flow{begins: true, Path: pathSocket, Hook: "connect", Protocol: "TCP", Cookie: 7, From: netip.MustParseAddrPort(from), To: netip.MustParseAddrPort("10.96.0.1:80"), NowTo: netip.MustParseAddrPort("10.244.1.1:80"), State: state}
	}
	const a, b, any, own = "10.244.1.1:80", "10.244.1.2:80", "0.0.0.0:0", "10.0.0.1:99"
	for _, tc := range []struct {
		name  string
		looks []*flow // nil for none
		want  string
	}{
		{"what is there is not told", []*flow{packets("established", a), packets("established", a)}, ""},
		{"begun, confirmed, closed", []*flow{nil, packets("half-open", a), packets("established", a), packets("closing", a), packets("closed", a), nil}, "new established closing closed"},
		{"not confirmed", []*flow{nil, packets("half-open", a), packets("half-open", a), nil}, "new evicted"},
		{"confirmed, and gone", []*flow{packets("established", a), nil}, "evicted"},
		{"closed by one, and gone", []*flow{packets("closing", a), nil}, "closed"},
		{"another after one that is closed", []*flow{packets("established", a), packets("closed", a), packets("closed", a), packets("half-open", a), packets("established", a), nil}, "closed new established evicted"},
		{"silent for too long", []*flow{packets("established", a), packets("expired", a), nil}, "expired"},
		{"to another backend", []*flow{packets("established", a), packets("established", b)}, "moved"},
		{"its backend is gone", []*flow{packets("established", a), packets("broken", a), nil}, "broken"},
		{"a socket that gets its address", []*flow{nil, socket("half-open", any), socket("established", own), nil}, "new established closed"},
		{"the direction back", []*flow{nil, {Path: pathPacket, Hook: "out"}}, ""},
	} {
		var out strings.Builder
		w := &flowWatch{env: &env{}, out: &out}
		for _, f := range tc.looks {
			var items []item
			if f != nil {
				items = []item{f}
			}
			if err := w.tell(time.Now(), items); err != nil {
				t.Fatal(err)
			}
		}
		var got []string
		for line := range strings.Lines(out.String()) {
			got = append(got, strings.Fields(line)[1])
		}
		if diff := cmp.Diff(tc.want, strings.Join(got, " ")); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.name, diff)
		}
	}
}

func TestEventsOfFlowsAreLines(t *testing.T) {
	var out strings.Builder
	w := &flowWatch{env: &env{}, out: &out}
	f := &flow{begins: true, Path: pathPacket, Hook: "in", Protocol: "UDP", From: netip.MustParseAddrPort("192.0.2.9:4711"), To: netip.MustParseAddrPort("203.0.113.1:53"), NowTo: netip.MustParseAddrPort("10.244.1.1:53"), State: "half-open", Service: "default/dns:dns/UDP"}
	for _, items := range [][]item{nil, {f}} {
		if err := w.tell(time.Now(), items); err != nil {
			t.Fatal(err)
		}
	}
	want := regexp.MustCompile(`^\d\d:\d\d:\d\d\.\d{3}  new  in  UDP  192.0.2.9:4711  203.0.113.1:53  10.244.1.1:53  half-open  default/dns:dns/UDP\n$`)
	if !want.MatchString(out.String()) {
		t.Errorf("%q", out.String())
	}
}

func TestFlowsThatAreOverAreShownIfAskedFor(t *testing.T) {
	const goOn = "half-open unreplied replied established unconnected closing refused"
	for only, want := range map[datapath.FlowState]string{
		"": goOn, anyState: goOn + " closed broken expired", "closed": "closed", "expired,established": "established expired",
	} {
		var got []string
		for _, state := range datapath.FlowStates {
			if isShown(only, string(state)) {
				got = append(got, string(state))
			}
		}
		if all := strings.Join(got, " "); all != want {
			t.Errorf("%q: %s, want %s", only, all, want)
		}
	}
}

// With --state what happens in others is not told of, though it is known.
func TestEventsInAStateAreShown(t *testing.T) {
	var out strings.Builder
	w := &flowWatch{env: &env{}, out: &out, states: "closing,closed"}
	for _, state := range []string{"established", "half-open", "established", "closing", "closed"} {
		f := &flow{begins: true, Path: pathPacket, Hook: "in", Protocol: "TCP", State: state}
		if err := w.tell(time.Now(), []item{f}); err != nil {
			t.Fatal(err)
		}
	}
	want := regexp.MustCompile(`^\S+  closing .*\n\S+  closed .*\n$`)
	if !want.MatchString(out.String()) || w.there != 1 {
		t.Errorf("%q; %d are there, want 1", out.String(), w.there)
	}
}

// What is counted and was not seen is missing, and is said once.
func TestWhatNoLineTellsOfIsCounted(t *testing.T) {
	for _, tc := range []struct {
		path flowPath
		want string
	}{
		{allPaths, "not shown: 2 sockets that came and went between two looks\nnot shown: 1 packet flow that came and went between two looks\nnot shown: 3 sockets that came and went between two looks\n"},
		{pathPacket, "not shown: 1 packet flow that came and went between two looks\n"},
	} {
		var said strings.Builder
		w := &flowWatch{env: &env{}, out: io.Discard, complaints: &said, began: begun{10, 20}, seen: begun{sockets: 1}}
		for _, counted := range []begun{{10, 20}, {13, 21}, {13, 21}, {16, 21}} {
			w.complain(counted, tc.path)
		}
		if diff := cmp.Diff(tc.want, said.String()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.path, diff)
		}
	}
}
