package peers

import (
	"testing"
	"time"
)

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
