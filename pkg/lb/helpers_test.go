package lb

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// here is the node that the tests look from.
var here = Node{Name: "node-1", Zone: "zone-a"}

// mustDiff fails the test where got is not what is wanted.
func mustDiff(tb testing.TB, want, got any) {
	tb.Helper()
	if d := cmp.Diff(want, got, cmpopts.EquateComparable(netip.Addr{}), cmpopts.EquateEmpty()); d != "" {
		tb.Errorf("(-want +got):\n%s", d)
	}
}

// mustEndpoints reads endpoints, one a line or separated by semicolons, such
// as "10.0.0.1 ready on=node-1 zones=zone-a,zone-b nodes=node-2". Beside ready
// there are serving, terminating, and published, which is ready without serving; ready implies serving.
func mustEndpoints(tb testing.TB, text string) []Endpoint {
	tb.Helper()
	var all []Endpoint
	for line := range strings.FieldsFuncSeq(text, func(r rune) bool { return r == ';' || r == '\n' }) {
		if words := strings.Fields(line); len(words) > 0 {
			all = append(all, mustEndpoint(tb, words))
		}
	}
	return all
}

// mustEndpoint reads one endpoint.
func mustEndpoint(tb testing.TB, words []string) Endpoint {
	tb.Helper()
	e, where := Endpoint{Addr: netip.MustParseAddr(words[0])}, Topology{}
	for _, word := range words[1:] {
		key, value, _ := strings.Cut(word, "=")
		switch key {
		case "ready":
			e.Ready, e.Serving = true, true
		case "published":
			e.Ready = true
		case "serving":
			e.Serving = true
		case "terminating":
			e.Terminating = true
		case "unready":
		case "on":
			where.Node = value
		case "zone":
			where.Zone = value
		case "zones":
			where.ZoneHints = Names(value)
		case "nodes":
			where.NodeHints = Names(value)
		default:
			tb.Fatalf("unknown word %q", word)
		}
	}
	e.Where = where.Share()
	return e
}

// web is the slice name of a test's nth slice.
func web(n string) SliceName { return SliceName{"default", "web-" + n} }

// mustSlice returns a slice of Service default/web with endpoints as
// mustEndpoints reads them, serving port http at 8080.
func mustSlice(tb testing.TB, name, endpoints string) *Slice {
	tb.Helper()
	return &Slice{
		SliceName: web(name),
		Service:   "web",
		Ports:     []SlicePort{{Name: "http", Protocol: TCP, Port: 8080}},
		Endpoints: mustEndpoints(tb, endpoints),
	}
}

// addrs parses addresses separated by spaces.
func addrs(text string) (all []netip.Addr) {
	for _, s := range strings.Fields(text) {
		all = append(all, netip.MustParseAddr(s))
	}
	return all
}

// hosts prints the addresses of backends, separated by spaces.
func hosts(backends []AddrPort) string {
	var all []string
	for _, b := range backends {
		all = append(all, b.Addr.String())
	}
	return strings.Join(all, " ")
}

// prefixes reads prefixes separated by blanks.
func prefixes(text string) (all []netip.Prefix) {
	for word := range strings.FieldsSeq(text) {
		all = append(all, netip.MustParsePrefix(word))
	}
	return all
}
