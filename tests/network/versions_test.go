package network

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate/pkg/datapath"
)

// before names programs of earlier versions, separated by commas: make versions-test builds them.
// One whose name has the first end keeps no flows of this version, since it has another table for them; one
// with the second is of another version of carrying, so that nodes of both do not carry to each other.
const (
	before           = "HEADGATE_VERSIONS"
	onlyFrom         = "-only-from"
	carriesOtherwise = "-carries-otherwise"
)

// carriesAll is the flag by which packets of all Services are carried to other nodes.
const carriesAll = "--forwarding=dsr"

// TestFlowsOutliveOtherVersions has Services with every option, and an agent of an earlier
// version take the node over from this one, and give it back: what is open stays with its
// backend both ways, and so does what begins under the earlier one. It does so with packets that
// go through the stack, and with what the earlier version knows of ways past it.
func TestFlowsOutliveOtherVersions(t *testing.T) {
	if os.Getenv(before) == "" {
		t.Skipf("needs programs of earlier versions in %s: make versions-test", before)
	}
	for _, program := range strings.Split(os.Getenv(before), ",") {
		t.Run(filepath.Base(program), func(t *testing.T) { outliveVersion(t, program) })
		past := pastTheStack(t, program)
		t.Run(filepath.Base(program)+" "+strings.Join(past, " "), func(t *testing.T) { outliveVersion(t, program, past...) })
	}
}

// pastTheStack are flags of the agent by which packets go past the network stack, as far as a
// program knows them.
func pastTheStack(t *testing.T, program string) (flags []string) {
	t.Helper()
	help, err := exec.Command(program, "agent", "--help").CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v: %s", program, err, help)
	}
	for _, flag := range []string{"--redirect=true", "--xdp=eth*", carriesAll} {
		if flag == carriesAll && strings.Contains(program, carriesOtherwise) {
			continue
		}
		if name, _, _ := strings.Cut(flag, "="); strings.Contains(string(help), name+" ") {
			flags = append(flags, flag)
		}
	}
	return flags
}

// wantPast wants packets to have gone past the stack as flags say.
func (s optionStage) wantPast(t *testing.T, flags []string) {
	t.Helper()
	for flag, name := range map[string]string{"--redirect=true": "flow_redirected", "--xdp=eth*": "flow_repeated"} {
		if slices.Contains(flags, flag) && s.node.counter(t, name) == 0 {
			t.Errorf("with %s %s is 0", flag, name)
		}
	}
}

// peerCounts returns what the node has carried to all others, and taken from them.
func (n *node) peerCounts(t *testing.T) (sum datapath.PeerCounts) {
	t.Helper()
	r, err := datapath.Inspect(n.root)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for id := range r.Peers() {
		c, err := r.PeerCounts(id)
		if err != nil {
			t.Fatal(err)
		}
		sum.Carried += c.Carried
		sum.CarriedBytes += c.CarriedBytes
		sum.PassedOn += c.PassedOn
		sum.Received += c.Received
	}
	return sum
}

// carriedTo returns how many packets the node has carried to others.
func (n *node) carriedTo(t *testing.T) uint64 { return n.peerCounts(t).Carried }

func outliveVersion(t *testing.T, program string, flags ...string) {
	s := newOptionStage(t, flags...)
	if slices.Contains(flags, carriesAll) {
		eventually(t, "packets are carried", func() error {
			if _, err := s.client.ask("tcp", netip.MustParseAddrPort("203.0.113.1:80")); err != nil || s.node.carriedTo(t) == 0 {
				return fmt.Errorf("none yet: %v", err)
			}
			return nil
		})
	}
	ours, said := s.openAll(t)
	s.ejectFailing(t)
	had := s.node.kept(t)
	want := func(when string, f flows, said map[string]string) {
		t.Helper()
		lost := 0
		for flow, who := range f.ask() {
			if who != said[flow] {
				lost++
				t.Logf("%s: %s was %s, is %s", when, flow, said[flow], who)
			}
		}
		if lost > 0 {
			t.Errorf("%s: %d of %d flows are lost", when, lost, len(said))
		}
	}
	goesBack := !strings.HasSuffix(program, onlyFrom)
	for round := range 3 {
		s.node.program = program
		s.replaceAgent(t, syscall.SIGKILL, nil)
		if goesBack {
			want(fmt.Sprintf("round %d, by the earlier version", round), ours, said)
		} else {
			want(fmt.Sprintf("round %d, sockets by the earlier version", round), ours.ofSockets(), said)
		}
		theirs, saidThen := s.openAll(t)
		s.node.program = ""
		s.replaceAgent(t, syscall.SIGKILL, nil)
		if goesBack {
			want(fmt.Sprintf("round %d, back", round), ours, said)
		}
		want(fmt.Sprintf("round %d, back, what the earlier version began", round), theirs, saidThen)
		theirs.close()
	}
	s.wantPast(t, flags)
	has := s.node.kept(t)
	if has.Frontends != had.Frontends {
		t.Errorf("there are %d frontends, were %d", has.Frontends, had.Frontends)
	}
	if !goesBack {
		return
	}
	s.isKept(t, had, has)
}

// isKept fails for what had is no more when others have come and gone.
func (s optionStage) isKept(t *testing.T, had, has kept) {
	t.Helper()
	if diff := cmp.Diff(had.Content, has.Content); diff != "" {
		t.Errorf("content (-before +after):\n%s", diff)
	}
	if diff := cmp.Diff(had.Ejected, has.Ejected); diff != "" {
		t.Errorf("ejected backends (-before +after):\n%s", diff)
	}
	for name, n := range had.Entries {
		if has.Entries[name] < n {
			t.Errorf("%s has %d entries, had %d", name, has.Entries[name], n)
		}
	}
	for name, n := range had.Drops {
		if has.Drops[name] != n {
			t.Errorf("drops by %s are %d, were %d", name, has.Drops[name], n)
		}
	}
	eventually(t, "what has ended is in flight no more", func() error {
		now := s.node.kept(t).InFlight
		for backend, n := range had.InFlight { // datagrams are in flight until they have been silent for long
			if now[backend] < n || now[backend] > n && strings.HasSuffix(backend, "/TCP") {
				return fmt.Errorf("%d connections to %s are in flight, were %d", now[backend], backend, n)
			}
		}
		return nil
	})
}

// ofSockets are the flows of sockets alone.
func (f flows) ofSockets() flows { return flows{nil, f.holder} }

// close ends all flows.
func (f flows) close() {
	for _, conn := range f.outside {
		conn.Close()
	}
	f.in.Close()
}
