package hostile_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"
)

// seconds is how long all attacks together may take, beside what starts and ends them.
const seconds = "HEADGATE_HOSTILE_SECONDS"

// attack is what somebody does before the victims connect, while they do so until the
// context ends, and how it is taken back.
type attack struct {
	name     string
	prepare  func(*stage)
	run      func(ctx context.Context, s *stage, got *row)
	withdraw func(*stage)
}

var attacks = []attack{
	{"pod: connects bound to lo", nil, boundToLoopback, nil},
	{"pod: refused in a namespace of its own", nil, refusedByOneself, nil},
	{"pod: refused in eight namespaces", nil, refusedByMany, nil},
	{"pod: connects to itself at 0.0.0.0", nil, ownNodePort, nil},
	{"wire: SYNs from multicast", nil, repeatedSYNs(0, always("224.1.2.3")), nil},
	{"wire: SYNs from 0.0.0.0", nil, repeatedSYNs(0, always("0.0.0.0")), nil},
	{"wire: SYNs from broadcast", nil, repeatedSYNs(0, always("255.255.255.255")), nil},
	{"wire: SYNs from the node's address", nil, repeatedSYNs(0, always(nodeAddr.String())), nil},
	{"wire: SYNs from a pod's address", nil, repeatedSYNs(0, always(clientAddr.String())), nil},
	{"wire: SYNs with TTL 1", nil, repeatedSYNs(1, always("203.0.113.77")), nil},
	{"wire: SYNs from nowhere", nil, repeatedSYNs(0, nowhere), nil},
	{"wire: SYNs to 0.0.0.0", nil, forUnspecified, nil},
	{"wire: fragments for nobody", nil, fragmentsForNobody, nil},
	{"wire: ACKs", nil, acknowledgements, nil},
	{"wire: datagrams of a Service to itself", nil, datagramsOfServices, nil},
	{"load: pairs of datagrams", nil, pairsOfDatagrams, nil},
	{"tenant: 65,536 source ranges", nil, sourceRanges, withdrawLate},
	{"tenant: 52 huge tables", nil, tables, withdrawLate},
	{"tenant: 80 external IPs of one place", nil, externalsOfOnePlace, withdrawLate},
	{"tenant: 80 ClusterIPs of one place", nil, clusterIPsOfOnePlace, withdrawLate},
	{"tenant: probes", nil, probes, withdrawOne},
	{"file: control characters", nil, controlCharacters, withdrawNames},
	{"file: 200,000 broken documents", nil, brokenDocuments, withdrawLate},
	{"file: one bad endpoint", nil, badEndpoint, withdrawOne},
}

// claims are attacks of a tenant who asks for addresses that are others'.
var claims = []attack{
	{"tenant: claims", claim, none, nil},
	{"tenant: claims, after a restart", restart, none, nil},
	{"tenant: claims, after a cold start", (*stage).coldStart, none, withdrawClaims},
}

// The time of an attacker is short, so that all of them fit into the time of a test: what
// they get in an hour they get in two seconds, or the hour tells. Each attack has the same part of the time, while the victims connect.
func TestAttackersGetNothing(t *testing.T) {
	s := newStage(t, manifests)
	s.addVictims(nodeServers...)
	s.sufferAll(t, slices.Concat(claims, attacks))
}

// A Service may ask for addresses of the node here, as with kube-proxy. Servers of the
// node keep their ports, and so do the NodePorts of others.
func TestClaimsToTheNodeGetNothing(t *testing.T) {
	s := newStage(t, manifests, "--external-ips", "allow")
	s.addVictims(nodeServers...)
	s.sufferAll(t, claims)
}

// Without external IPs a Service still chooses its ClusterIP.
func TestServicesOfOnePlaceGetNothingWithoutExternalIPs(t *testing.T) {
	s := newStage(t, manifests, "--external-ips", "deny")
	s.addVictims(nodeServers...)
	s.sufferAll(t, []attack{{"tenant: 80 ClusterIPs of one place", nil, clusterIPsOfOnePlace, withdrawLate}})
}

// sufferAll runs attacks one after the other, none of which may get anything.
func (s *stage) sufferAll(t *testing.T, attacks []attack) {
	t.Helper()
	each := attackTime(t)
	var rows []*row
	t.Cleanup(func() { t.Logf("what attackers got, of %v each:\n%s", each, table(rows)) })
	for _, a := range attacks {
		t.Run(a.name, func(t *testing.T) {
			got := s.suffer(t, a, each)
			rows = append(rows, got)
			got.judge(t)
		})
	}
}

// attackTime is the part of the time that each attack of both tests has.
func attackTime(t *testing.T) time.Duration {
	t.Helper()
	total := numberOf(t, seconds, 50)
	return max(time.Duration(total)*time.Second/time.Duration(len(attacks)+2*len(claims)), 2*time.Second)
}

// suffer runs an attack while the victims connect.
func (s *stage) suffer(t *testing.T, a attack, each time.Duration) *row {
	t.Helper()
	s.tb = t
	got := &row{attack: a.name}
	if a.prepare != nil {
		a.prepare(s)
	}
	s.forgetMemory()
	ctx, cancel := context.WithTimeout(t.Context(), each)
	defer cancel()
	ejected := make(chan int, 1)
	go func() { ejected <- s.watchEjected(ctx) }()
	var attacker sync.WaitGroup
	attacker.Go(func() { a.run(ctx, s, got) })
	h := s.connect(ctx)
	attacker.Wait()
	h.failed, h.examples = h.failed+got.failed, append(h.examples, got.examples...)
	got.harm, got.ejected = h, <-ejected
	got.memory = s.memory()
	if a.withdraw != nil {
		a.withdraw(s)
	} else if got.ejected > 0 { // which are no fault of the next attacker
		s.coldStart()
	}
	return got
}
