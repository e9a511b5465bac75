package peers

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/headgate/headgate/pkg/plan"
)

// What one node puts into outer headers is what the other one takes, and nothing else is: not what goes
// the other way, nor what follows from another key.
func TestCookiesAreOfTwoNodesAndAKey(t *testing.T) {
	of := func(key uint64, here, there string) plan.Cookies {
		p := &Prober{cfg: Config{Here: here, Key: [2]uint64{key, 7}}}
		return p.cookies(there)
	}
	a, b := of(1, "a", "b"), of(1, "b", "a")
	if a.Out != b.In || a.In != b.Out {
		t.Errorf("a has %x, b has %x", a, b)
	}
	seen := map[uint64]bool{}
	for _, c := range []plan.Cookies{a, of(2, "a", "b"), of(1, "a", "c"), of(1, "c", "b"), of(1, "a", "a")} {
		for _, cookie := range []uint64{c.Out, c.In} {
			if c.Out != c.In && seen[cookie] {
				t.Errorf("%x stands for two pairs", cookie)
			}
			seen[cookie] = true
			if first := binary.NativeEndian.AppendUint64(nil, cookie)[0]; first >= 0x10 || cookie == 0 {
				t.Errorf("%x may be taken for the begin of an IP packet, or for none", cookie)
			}
		}
	}
}

func TestIPIPIsTakenFromThoseWhoCarryIt(t *testing.T) {
	key := [2]uint64{1, 2}
	found := time.Unix(1000, 0)
	for _, c := range []struct {
		what  string
		udp   bool
		asks  Digest
		after time.Duration
		want  bool
	}{
		{"this node carries so", false, Digest{}, time.Hour, true},
		{"this node carries so, the peer does not", false, DigestOf(key, true), 0, true},
		{"the peer has yet to ask", true, Digest{}, askedBy - time.Second, true},
		{"the peer does not ask", true, Digest{}, askedBy, false},
		{"the peer carries over UDP", true, DigestOf(key, true), 0, false},
		{"the peer carries IP in IP", true, DigestOf(key, false), time.Hour, true},
		{"the peer has another key", true, DigestOf([2]uint64{}, false), 0, false},
	} {
		p := &Prober{cfg: Config{Key: key, UDP: c.udp}}
		if got := p.takesIPIP(&asked{asks: c.asks, found: found}, found.Add(c.after)); got != c.want {
			t.Errorf("%s: %v, want %v", c.what, got, c.want)
		}
	}
}
