package packets

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/headgate/headgate/pkg/datapath"
	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/plan"
)

// edge is a node whose backends are outside, each a home of its own, by numbers from 1 on.
type edge struct{ *fleet }

const outsideBackends = 4

var outsideStories = []struct {
	name string
	tell func(*testing.T, edge)
}{
	{"A packet is carried as it came, and its flow is kept", outsideAsItCame},
	{"A connection stays where it began, whatever its slot names", keptStays},
	{"What began elsewhere goes to whom its slot named before", unknownGoesToFormer},
	{"A port that comes again after an end is a new connection", endedBeginsAnew},
	{"A connection is reset once its backend has left", leftIsReset},
	{"What begins avoids a backend that fails its probes", unwellIsAvoided},
	{"ICMP errors go where their connection is", errorsGoOutside},
	{"Another port than the Service's goes by the node's address", otherPortGoesByAddress},
	{"It is explained which backend a packet is carried to", explainKnowsTheBackendOutside},
}

func TestBackendsOutside(t *testing.T) {
	for name, ipip := range map[string]bool{"IP in IP": true, "UDP": false} {
		for _, overV6 := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s over %s", name, map[bool]string{false: "IPv4", true: "IPv6"}[overV6]), func(t *testing.T) {
				newEdge(t, overV6, ipip).tell(t)
			})
		}
	}
}

// newEdge makes an edge whose outer headers are of a family, IP in IP or over UDP.
func newEdge(t *testing.T, overV6, ipip bool) edge {
	t.Helper()
	e := edge{newFleet(t, 1, overV6, func(c *datapath.Config) { c.XDP, c.OutsideUDP = true, !ipip })}
	e.outside, e.ipip = true, ipip
	n := e.nodes[0]
	n.openDriver(t)
	n.sendsXDP(t, n.devices[uplink])
	n.driver = &comparison{}
	for b := 1; b <= outsideBackends; b++ {
		n.routeTo(t, e.hostOf(b))
		n.apply(t, []plan.Op{plan.PutPeer{ID: n.peer(b), Peer: plan.Peer{
			Theirs: e.hostOf(b), Ours: n.addr, MTU: fleetMTU, Usable: true, Outside: true,
		}}})
	}
	return e
}

func (e edge) tell(t *testing.T) {
	for _, s := range outsideStories {
		for _, book := range []book{v4, v6} {
			for _, protocol := range []lb.Protocol{lb.TCP, lb.UDP} {
				t.Run(fmt.Sprintf("%s/%s/%s", s.name, book.family(), protocol), func(t *testing.T) {
					e.book, e.protocol = book, protocol
					s.tell(t, e)
				})
			}
		}
	}
	if d := e.nodes[0].driver; d.sent > 0 || d.passed == 0 {
		t.Errorf("the driver has sent %d packets, and passed on %d; only TC keeps flows", d.sent, d.passed)
	}
}

// hostOf is where outer headers to a backend go.
func (e edge) hostOf(backend int) netip.Addr { return nodeAddr(20+backend, e.overV6) }

func (e edge) backend(b int) lb.AddrPort {
	return lb.AddrPort{Addr: nodeAddr(20+b, !e.client.Is4()), Port: 80, Protocol: e.protocol}
}

// serves says which backends slots name, and which the Service has still.
func (e edge) serves(t *testing.T, members []int, backends ...int) {
	t.Helper()
	n := e.nodes[0]
	var ops []plan.Op
	for b := 1; b <= outsideBackends; b++ {
		ops = append(ops, plan.PutBackend{ID: n.id(b), Backend: e.backend(b)}, plan.PutHome{ID: n.id(b), Home: n.peer(b)})
	}
	n.slots, n.was = slotsOf(backends), make([]plan.Owners, fleetSlots)
	n.forgetSlotChanges(t)
	n.apply(t, append(ops, plan.PutTable{Table: plan.Table{Offset: firstFleetSlot, Size: fleetSlots}, Backends: n.ids(n.slots)}))
	e.has(t, members...)
	n.forget(t)
	for b := range outsideBackends {
		e.judge(t, b+1, true)
	}
}

// has says which backends the Service has.
func (e edge) has(t *testing.T, members ...int) {
	t.Helper()
	table := plan.Table{Offset: fleetMembersAt, Size: uint32(len(members))}
	view := plan.View{Table: plan.Table{Offset: firstFleetSlot, Size: fleetSlots}, Algorithm: lb.Stable}
	e.nodes[0].apply(t, []plan.Op{
		plan.PutTable{Table: table, Backends: e.nodes[0].ids(members)},
		plan.PutService{ID: fleetService, Service: plan.Service{ServiceName: lb.ServiceName{Namespace: "test", Name: "web"}, Protocol: e.protocol}},
		plan.PutFrontend{Key: lb.AddrPort{Addr: e.vip, Port: 80, Protocol: e.protocol}, Value: plan.Frontend{
			Service: fleetService, Kind: lb.LoadBalancerIP, Members: table, Carried: true, Steering: lb.Steering{PassiveHealth: lb.SwitchOn},
			Views: [lb.NumViews]plan.View{lb.Internal: view, lb.External: view},
		}},
		plan.PutAddress{Addr: e.vip, Kind: plan.FrontendAddress},
	})
}

// judge says what probes of a backend have found out.
func (e edge) judge(t *testing.T, backend int, well bool) {
	t.Helper()
	if _, err := e.nodes[0].dp.Eject(e.backend(backend), !well, time.Hour); err != nil {
		t.Fatal(err)
	}
}

// goesTo returns the backend that a packet is carried to, every byte of it as it should be.
func (e edge) goesTo(t *testing.T, when string, p packet) int {
	t.Helper()
	return e.frameGoesTo(t, when, p.frame(t), func() []byte { p.ttl = 63; return p.frame(t) }())
}

func (e edge) frameGoesTo(t *testing.T, when string, given, inner []byte) int {
	t.Helper()
	verdict, made := e.nodes[0].run(t, in, uplink, given)
	for b := 1; b <= outsideBackends; b++ {
		want := e.outerBetween(e.nodes[0].addr, e.hostOf(b), inner, 0, 0)
		if verdict == redirect && len(made) >= len(want) && e.isCarriedAs(made[:len(want)], want) {
			return b
		}
	}
	t.Fatalf("%s: verdict %d for %s\nwhich is %s for nobody", when, verdict, dump(given), dump(made))
	return 0
}

func (e edge) began(t *testing.T, ports uint16) (all []packet, at []int) {
	t.Helper()
	for port := range ports {
		all = append(all, e.packet(40000+port, "S", 0))
		at = append(at, e.goesTo(t, "what begins", all[port]))
	}
	return all, at
}

func outsideAsItCame(t *testing.T, e edge) {
	e.serves(t, []int{1, 2, 3}, 1, 2, 3)
	all, at := e.began(t, 30)
	if n := e.nodes[0].flows(t); n != len(all) {
		t.Errorf("%d flows are kept of %d", n, len(all))
	}
	for i, p := range all {
		for _, flags := range []string{"S", "A", "PA", "FA", "R"} {
			if to := e.goesTo(t, flags, p.with(flags)); to != at[i] {
				t.Fatalf("%s goes to %d, its connection is at %d", flags, to, at[i])
			}
		}
	}
	if n := e.nodes[0].flows(t); n != len(all) {
		t.Errorf("%d flows are kept of %d in the end", n, len(all))
	}
}

// Backends come and go without an end, and connections of all times go on.
func keptStays(t *testing.T, e edge) {
	e.serves(t, []int{1, 2, 3, 4}, 1, 2)
	all, at := e.began(t, 40)
	random, moved := rand.New(rand.NewPCG(1, 2)), 0
	for step := range 20 {
		backends := []int{1 + random.IntN(4)}
		for b := 1; b <= outsideBackends; b++ {
			if random.IntN(2) == 0 && b != backends[0] {
				backends = append(backends, b)
			}
		}
		e.nodes[0].learn(t, backends...)
		p := e.packet(uint16(50000+step), "S", 0)
		all, at = append(all, p), append(at, e.goesTo(t, "what begins", p))
		for i, p := range all {
			if to := e.goesTo(t, "what goes on", p.with([]string{"A", "S"}[random.IntN(2)])); to != at[i] {
				t.Fatalf("step %d: connection %d goes to %d, it is at %d", step, i, to, at[i])
			}
			if e.nodes[0].slots[0] != at[i] {
				moved++
			}
		}
	}
	if moved == 0 {
		t.Error("no slot has moved")
	}
}

func unknownGoesToFormer(t *testing.T, e edge) {
	e.serves(t, []int{1, 2, 3, 4}, 1, 2)
	all, at := e.began(t, 40)
	e.nodes[0].forget(t) // as another edge, where they do not begin
	e.nodes[0].learn(t, 3, 4)
	for i, p := range all {
		to := e.goesTo(t, "unknown", p.with("A"))
		if known := e.protocol == lb.TCP; known != (to == at[i]) {
			t.Fatalf("of %s it goes to %d, before it went to %d", e.protocol, to, at[i])
		}
		at[i] = to
	}
	e.nodes[0].learn(t, 1)
	for i, p := range all {
		if to := e.goesTo(t, "later", p.with("A")); to != at[i] {
			t.Fatalf("what went to %d goes to %d later", at[i], to)
		}
	}
}

func endedBeginsAnew(t *testing.T, e edge) {
	if e.protocol != lb.TCP {
		return
	}
	e.serves(t, []int{1, 2, 3, 4}, 1)
	for i, end := range []string{"FA", "R"} {
		p := e.packet(uint16(40000+i), "S", 0)
		e.goesTo(t, "it begins", p)
		e.goesTo(t, "it is open", p.with("A"))
		e.nodes[0].learn(t, 2)
		if to := e.goesTo(t, "again without an end", p); to != 1 {
			t.Errorf("a SYN within a connection goes to %d", to)
		}
		e.goesTo(t, "its end", p.with(end))
		if to := e.goesTo(t, "its last packet", p.with("A")); to != 1 {
			t.Errorf("after its end it goes to %d", to)
		}
		e.wantState(t, "after "+end, p, datapath.FlowClosing)
		if to := e.goesTo(t, "again", p); to != 2 {
			t.Errorf("after %s it begins at %d, want the backend of now", end, to)
		}
		e.nodes[0].learn(t, 1)
	}
}

// wantState wants the flow of a client to have a state.
func (e edge) wantState(t *testing.T, when string, p packet, want datapath.FlowState) {
	t.Helper()
	i, err := datapath.Inspect(e.nodes[0].root)
	must(t, err)
	defer i.Close()
	found := 0
	must(t, i.Flows(func(f datapath.Flow) error {
		if f.From == p.src {
			if found++; f.State != want {
				t.Errorf("%s: the state of %v is %s, want %s", when, f.From, f.State, want)
			}
		}
		return nil
	}))
	if found == 0 {
		t.Errorf("%s: no flow of %v is there", when, p.src)
	}
}

func leftIsReset(t *testing.T, e edge) {
	e.serves(t, []int{1, 2}, 1)
	p := e.packet(40000, "S", 0)
	e.goesTo(t, "it begins", p)
	e.goesTo(t, "it is open", p.with("A"))
	e.nodes[0].learn(t, 2)
	e.has(t, 2)
	e.nodes[0].age(t, 2)
	if e.protocol == lb.UDP {
		if to := e.goesTo(t, "a datagram", p); to != 2 {
			t.Errorf("a datagram goes to %d", to)
		}
		return
	}
	e.nodes[0].allowResets(t)
	e.nodes[0].isReset(t, "its backend has left", in, uplink, p.with("A"))
	if to := e.goesTo(t, "it begins anew", p); to != 2 {
		t.Errorf("it begins at %d", to)
	}
}

func unwellIsAvoided(t *testing.T, e edge) {
	e.serves(t, []int{1, 2, 3}, 1, 2, 3)
	all, at := e.began(t, 60)
	for i, p := range all { // which are open
		e.goesTo(t, "it is open", p.with("A"))
		if i%2 == 0 {
			e.nodes[0].forget(t)
		}
	}
	e.judge(t, 1, false)
	all2, at2 := []packet{}, []int{}
	for i := range all {
		p := e.packet(uint16(41000+i), "S", 0)
		all2, at2 = append(all2, p), append(at2, e.goesTo(t, "what begins", p))
		if at2[i] == 1 {
			t.Fatal("what begins goes to a backend that fails its probes")
		}
	}
	e.nodes[0].age(t, 2)
	again := 0
	for i, p := range all {
		to := e.goesTo(t, "a SYN again", p)
		if to == 1 || at[i] != 1 && to != at[i] {
			t.Fatalf("a SYN again goes to %d, it went to %d", to, at[i])
		}
		if at[i] == 1 {
			again++
		}
	}
	if again == 0 {
		t.Error("no backend was avoided")
	}
	e.nodes[0].forget(t)
	for i, p := range all2 { // as another edge, of the same opinion
		if to := e.goesTo(t, "unknown", p.with("A")); to != at2[i] {
			t.Fatalf("what began at %d goes to %d", at2[i], to)
		}
	}
	e.judge(t, 1, true)
	for i, p := range all2 {
		if to := e.goesTo(t, "what goes on", p.with("A")); to != at2[i] {
			t.Fatalf("what is at %d goes to %d, since all are well", at2[i], to)
		}
	}
}

func errorsGoOutside(t *testing.T, e edge) {
	e.serves(t, []int{1, 2, 3, 4}, 1, 2)
	all, at := e.began(t, 20)
	e.nodes[0].learn(t, 3, 4)
	for i, p := range all {
		given := e.portUnreachable(t, e.router, p.answer("A", nil))
		inner := given.packet()
		inner.ttl = 63
		if to := e.frameGoesTo(t, "an error", given.frame(t), inner.frame(t)); to != at[i] {
			t.Fatalf("an error about a packet of %d goes to %d", at[i], to)
		}
	}
	if n := e.nodes[0].flows(t); n != len(all) {
		t.Errorf("%d flows, %d began", n, len(all))
	}
}

func otherPortGoesByAddress(t *testing.T, e edge) {
	e.serves(t, []int{1}, 1)
	other := e.backend(1)
	other.Port = 8080
	e.nodes[0].apply(t, []plan.Op{plan.PutBackend{ID: e.nodes[0].id(1), Backend: other}, plan.PutHome{ID: e.nodes[0].id(1), Home: e.nodes[0].peer(1)}})
	p := e.packet(40000, "S", 0)
	for _, flags := range []string{"S", "A"} {
		verdict, made := e.nodes[0].run(t, in, uplink, p.with(flags).frame(t))
		if src, dst, ok := ends(made); !ok || verdict == drop || src != p.src || dst != netip.AddrPortFrom(other.Addr, other.Port) {
			t.Errorf("%s: verdict %d, to %s", flags, verdict, dump(made))
		}
	}
}
