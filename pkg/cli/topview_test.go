package cli

import (
	stdcmp "cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate/pkg/datapath"
	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/plan"
)

// seenTraffic is a look at three Service ports: web has two backends, of which one is ejected, dns one
// that drains, and none has none.
func seenTraffic() (*trafficLook, []item) {
	at := func(last byte) lb.AddrPort {
		return lb.AddrPort{Addr: netip.AddrFrom4([4]byte{10, 244, 1, last}), Port: 8080, Protocol: lb.TCP}
	}
	l := &trafficLook{at: time.Date(2026, 11, 23, 14, 3, 22, 0, time.UTC), node: "node-a", zone: "a", described: true, failed: new(rate(0.3)), ejections: 9}
	l.said = &lb.Told{}
	put := func(last byte, service string, load datapath.Load, began rate, zone string, state lb.BackendState) {
		l.said.Add(lb.Description{Backend: at(last), Service: lb.ServiceName{Namespace: "default", Name: service}, Pod: lb.PodName{Namespace: "default", Name: fmt.Sprint("pod-", last)}, Node: "node-" + zone, Zone: zone, State: state})
		l.put(uint32(last), datapath.Backend{At: at(last), Load: load}, &began)
	}
	put(1, "web", datapath.Load{InFlight: 7}, 30, "a", lb.StateReady)
	put(2, "web", datapath.Load{InFlight: 1, Ejected: 14 * time.Second}, 10, "b", lb.StateReady)
	put(3, "dns", datapath.Load{InFlight: 2}, 0, "a", lb.StateTerminating)
	one := func(name string, perSecond, refused rate, reasons map[string]rate, ids ...uint32) item {
		t := &traffic{service: &service{
			port: plan.Service{ServiceName: lb.ServiceName{Namespace: "default", Name: name}, Port: "http", Protocol: lb.TCP}, ids: ids, Algorithm: "random",
			ConnectionsPerSecond: &perSecond, RefusedPerSecond: &refused, RefusedByReason: reasons,
		}}
		h := l.healthOf(t.service)
		t.InFlight = h.inFlight
		t.judge(l, h)
		return t
	}
	web := one("web", 40, 0, nil, 1, 2)
	web.(*traffic).trafficRates = trafficRates{new(rate(2048)), new(rate(3 << 20)), new(rate(0.5))}
	return l, []item{one("dns", 0, 0, nil, 3), one("none", 0, 0.5, map[string]rate{"no_endpoint": 0.5}), web}
}

const (
	keysOfTheList = "q end  Enter backends  / filter  sort: s c i r z y e d t f a n, again: reverse"
	trafficOfWeb  = "2.0 KiB/s to backends, 3.0 MiB/s from them; failed 0.5/s\n"
	noTraffic     = "-/s to backends, -/s from them; failed -/s\n"
	sumOfAll      = "40 conn/s, 10 in flight, 75% in zone a; 0.3/s not taken, 0 ejections\n3 backends: 1 ready, 1 ejected, 1 draining; refused 0.5/s: no_endpoint 0.5\n" + trafficOfWeb
	headerAt80    = "SERVICE                 CONN/S IN FLIGHT REFUSED/S ZONE   READY EJECTED DRAINING\n"
	webAt80       = "default/web:http/TCP        40         8         0  75%     1/2       1        0\n"
	dnsAt80       = "default/dns:http/TCP         0         2         0    -     0/1       0        1\n"
	noneAt80      = "default/none:http/TCP        0         0       0.5    -     0/0       0        0\n"
)

func TestTheFrameFollowsFromWhatWasReadAndPressed(t *testing.T) {
	list := func(by string, chosen int, rows ...string) string {
		rows[chosen] = ">" + rows[chosen]
		return "headgate top  by " + by + "  3 Service ports  node-a  14:03:22  every 1s\n" + sumOfAll + headerAt80 + strings.Join(rows, "") + strings.Repeat("\n", 3-len(rows)) + keysOfTheList
	}
	backends := func(by string, rows ...string) string {
		return "default/web:http/TCP  random  by " + by + `  node-a  14:03:22  every 1s
40 conn/s, 8 in flight, 75% in zone a
2 backends: 1 ready, 1 ejected, 0 draining; refused 0/s
` + trafficOfWeb + `BACKEND                 CONN/S IN FLIGHT STATE         ZONE       POD           
>` + strings.Join(rows, "") + "\nq end  Esc back  sort: b c i t z p, again: reverse"
	}
	first := "10.244.1.1:8080             30         7 ready         a          default/pod-1 \n"
	second := "10.244.1.2:8080             10         1 ejected 14s   b          default/pod-2 \n"
	for _, tc := range []struct {
		name, want string
		keys       []key
	}{
		{"the most connections come first", list("conn/s", 0, webAt80, dnsAt80, noneAt80), nil},
		{"a letter sorts", list("refused/s", 0, noneAt80, dnsAt80, webAt80), []key{'r'}},
		{"twice the other way round", list("service reversed", 0, webAt80, noneAt80, dnsAt80), []key{'s', 's'}},
		{"what is not known comes last", list("zone", 0, webAt80, dnsAt80, noneAt80), []key{'z'}},
		{"a chosen row stays so", list("service", 2, dnsAt80, noneAt80, webAt80), []key{keyDown, keyUp, 's'}},
		{"no row is below the last", list("conn/s", 2, webAt80, dnsAt80, noneAt80), []key{keyDown, 'j', keyDown, keyPageDown}},
		{"nor above the first", list("conn/s", 0, webAt80, dnsAt80, noneAt80), []key{keyEnd, keyPageUp, keyUp}},
		{"Enter shows backends", backends("conn/s", first, second), []key{keyEnter}},
		{"they are sorted, too", backends("in flight reversed", second, first), []key{keyEnter, 'i', 'i'}},
		{"Esc goes back", list("conn/s", 0, webAt80, dnsAt80, noneAt80), []key{keyEnter, keyEscape}},
		{"letters without meaning have none", list("conn/s", 0, webAt80, dnsAt80, noneAt80), []key{'x', keyBackspace, keyEscape, keySuspend}},
		{"a filter that is kept", "headgate top  by conn/s  1 of 3 Service ports with \"we\"  node-a  14:03:22  ever~\n" +
			"40 conn/s, 8 in flight, 75% in zone a; 0.3/s not taken, 0 ejections\n2 backends: 1 ready, 1 ejected, 0 draining; refused 0/s\n" + trafficOfWeb + headerAt80 + ">" + webAt80 + "\n\n" + keysOfTheList,
			[]key{'/', 'w', 'e', 'x', keyBackspace, keyEnter}},
		{"a filter that is typed means no keys", "headgate top  by conn/s  0 of 3 Service ports with \"q\"  node-a  14:03:22  every~\n" +
			"- conn/s, 0 in flight, - in zone a; 0.3/s not taken, 0 ejections\n0 backends: 0 ready, 0 ejected, 0 draining; refused -/s\n" + noTraffic + headerAt80 + "\n\n\n/q_   Enter keeps it, Esc shows all",
			[]key{'/', 'q'}},
		{"Enter chooses nothing of nothing", "headgate top  by conn/s  0 of 3 Service ports with \"q\"  node-a  14:03:22  every~\n" +
			"- conn/s, 0 in flight, - in zone a; 0.3/s not taken, 0 ejections\n0 backends: 0 ready, 0 ejected, 0 draining; refused -/s\n" + noTraffic + headerAt80 + "\n\n\n" + keysOfTheList,
			[]key{'/', 'q', keyEnter, keyEnter}},
		{"Esc takes a filter away", list("conn/s", 0, webAt80, dnsAt80, noneAt80), []key{'/', 'q', keyEnter, keyEscape}},
	} {
		v := viewOf(80, 9)
		for _, k := range tc.keys {
			if v.press(k) {
				t.Errorf("%s: it ends", tc.name)
			}
		}
		if diff := cmp.Diff(tc.want, textOf(v)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.name, diff)
		}
	}
}

func viewOf(width, height int) *topView {
	v := newTopView((&trafficReader{}).noun(), 1, time.Second)
	v.width, v.height = width, height
	v.saw(seenTraffic())
	return v
}

// textOf returns the frame with ">" before the row that is chosen.
func textOf(v *topView) string {
	var all []string
	for i, line := range v.frame() {
		if line.style == reverse && i != 4 {
			line.text = ">" + line.text
		}
		all = append(all, line.text)
	}
	return strings.Join(all, "\n")
}

func TestTheScreenEndsByTheKeysThatEndIt(t *testing.T) {
	for _, keys := range [][]key{{'q'}, {keyQuit}, {keyEnter, 'q'}, {'/', keyQuit}} {
		v, ended := viewOf(80, 9), false
		for _, k := range keys {
			ended = v.press(k)
		}
		if !ended {
			t.Errorf("%v does not end it", keys)
		}
	}
}

// Whatever is pressed, on a screen of any size: a frame fits, and shows the row that is chosen.
func TestAFrameFitsTheScreen(t *testing.T) {
	for _, size := range [][2]int{{80, 24}, {80, 9}, {200, 60}, {40, 7}, {20, 3}, {1, 1}, {0, 0}} {
		v := viewOf(size[0], size[1])
		for _, k := range []key{keyEnd, keyHome, 'c', 'z', keyEnter, keyDown, 'p', keyEscape, '/', 'é', 'w', keyEscape, keyEnd} {
			v.press(k)
			frame := v.frame()
			if len(frame) > size[1] {
				t.Errorf("%v: %d lines", size, len(frame))
			}
			chosen := 0
			for i, line := range frame {
				if n := utf8.RuneCountInString(line.text); n > size[0] {
					t.Errorf("%v: a line of %d: %s", size, n, line.text)
				}
				if line.style == reverse && i > 4 {
					chosen++
				}
			}
			if len(v.pane().rows) > 0 && size[1] > frameLines && chosen != 1 {
				t.Errorf("%v: %d rows are chosen after %v:\n%s", size, chosen, k, textOf(v))
			}
		}
	}
}

func TestTheScreenScrollsToTheChosenRow(t *testing.T) {
	v := viewOf(80, 7) // one row
	for _, step := range []struct {
		press key
		want  string
	}{{'s', "dns"}, {keyDown, "none"}, {keyDown, "web"}, {keyUp, "none"}, {keyHome, "dns"}, {keyPageDown, "none"}, {keyEnd, "web"}} {
		v.press(step.press)
		if row := v.frame()[5]; !strings.HasPrefix(row.text, "default/"+step.want+":") {
			t.Errorf("after %d: %s, want %s", step.press, row.text, step.want)
		}
	}
}

func TestWhatIsSeenLaterTakesTheChosenRowAlong(t *testing.T) {
	v := viewOf(80, 9)
	v.press(keyDown) // dns
	l, items := seenTraffic()
	l.ejections += 2
	v.saw(l, items[:1])
	if text := textOf(v); !strings.Contains(text, "\n>default/dns:") || !strings.Contains(text, ", 2 ejections\n") {
		t.Errorf("one is left:\n%s", text)
	}
	v.press(keyEnter)
	v.saw(l, items[1:])
	if text := textOf(v); !strings.Contains(text, "\n0 backends: 0 ready") || !strings.Contains(text, "default/dns:http/TCP  by conn/s  ") {
		t.Errorf("the Service is gone:\n%s", text)
	}
	v.inside = nil
	l.ejections = 3 // Headgate was removed meanwhile, and loaded anew
	v.saw(l, items)
	if text := textOf(v); !strings.Contains(text, ", 0 ejections\n") {
		t.Errorf("fewer ejections than there were:\n%s", text)
	}
	v.failure = "no\x1b[2J such map"
	if text := textOf(v); !strings.HasSuffix(text, "\nthese figures are old: no [2J such map") {
		t.Errorf("the maps are gone:\n%s", text)
	}
}

func TestWithoutAnAgentNobodyKnowsStatesAndZones(t *testing.T) {
	l, items := seenTraffic()
	l.described, l.zone, l.said = false, "", nil
	for id, b := range l.backends {
		load := l.unwell[uint32(id)]
		load.InFlight = b.inFlight
		l.put(uint32(id), datapath.Backend{At: b.at.AddrPort(), Load: load}, &b.began)
	}
	for _, i := range items {
		one := i.(*traffic)
		*one = traffic{service: one.service}
		one.Ready = nil
		one.judge(l, l.healthOf(one.service))
	}
	v := viewOf(80, 9)
	v.saw(l, items)
	text := textOf(v)
	for _, want := range []string{"in flight, zone unknown; ", "3 backends: 1 ejected, no agent says more; ", "40         8         0    -     -/2       1        -\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing:\n%s", want, text)
		}
	}
	v.press(keyEnter)
	if text := textOf(v); !strings.Contains(text, "7 unknown       unknown    unknown") {
		t.Errorf("backends:\n%s", text)
	}
}

func TestATerminalShowsAFrameOverTheOneBefore(t *testing.T) {
	const clear = "\x1b[0m\x1b[K"
	want := "\x1b[H" + clear + "\x1b[1ma\r\n" + clear + "\x1b[7mb  \r\n" + clear + "c\x1b[0m\x1b[J"
	if got := ansi([]screenLine{{"a", bold}, {"b", reverse}, {"c", plain}}, 3); got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// What an ordinary screen has no room for a wide one shows, column by column; the name has room on each.
func TestAWideScreenShowsBytesFailuresAndConnectTimes(t *testing.T) {
	p := newTopView((&trafficReader{}).noun(), 1, time.Second).services
	more := ""
	for width, title := range map[int]string{80: "", 89: "", 90: "TO/S", 100: "FROM/S", 109: "FAILED/S", 119: "CONNECT", 300: "CONNECT"} {
		header := p.header(width)
		if len(header) != width || !strings.HasSuffix(header, stdcmp.Or(title, "DRAINING")) {
			t.Errorf("%d columns: %q, want %d that end with %q", width, header, width, stdcmp.Or(title, "DRAINING"))
		}
		if width == 300 {
			more = header
		}
	}
	if want := "DRAINING      TO/S    FROM/S FAILED/S   CONNECT"; !strings.HasSuffix(more, want) {
		t.Errorf("%q, want %q at its end", more, want)
	}
	rates := trafficRates{new(rate(2048)), new(rate(3 << 20)), new(rate(0.5))}
	row := p.row(&traffic{service: &service{trafficRates: rates, ConnectTimes: &connectTimes{7, 31 * time.Microsecond, time.Second}}}, 119)
	if want := "2.0 KiB   3.0 MiB      0.5      31µs"; !strings.HasSuffix(row, want) {
		t.Errorf("%q, want %q at its end", row, want)
	}
}

// A backend of several Services counts once in the sum, as it is where it is best.
func TestTheSumTakesTheBestStateOfASharedBackend(t *testing.T) {
	at := lb.AddrPort{Addr: netip.MustParseAddr("10.0.0.1"), Port: 80, Protocol: lb.TCP}
	l := &trafficLook{described: true, said: &lb.Told{}}
	l.put(1, datapath.Backend{At: at, Load: datapath.Load{InFlight: 7}}, nil)
	var items []item
	for _, one := range []lb.Description{{Service: lb.ServiceName{Name: "bad"}, State: lb.StateUnready}, {Service: lb.ServiceName{Name: "good"}, State: lb.StateReady}} {
		one.Backend = at
		l.said.Add(one)
		tr := &traffic{service: &service{port: plan.Service{ServiceName: one.Service}, ids: []uint32{1}}}
		tr.judge(l, l.healthOf(tr.service))
		items = append(items, tr)
	}
	for range 2 {
		if sum := l.total(items); sum.Backends != 1 || *sum.Ready != 1 || sum.InFlight != 7 {
			t.Errorf("the sum has %d of %d backends ready, and %d in flight; want 1 of 1, and 7", *sum.Ready, sum.Backends, sum.InFlight)
		}
		slices.Reverse(items)
	}
}
