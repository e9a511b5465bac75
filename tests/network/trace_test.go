package network

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
)

// TestEachConnectionIsTracedWithDSR traces the node where connections come in: each is a line, whether its backend is on this
// node or on another.
func TestEachConnectionIsTracedWithDSR(t *testing.T) {
	f := newFabric(t, "dsr")
	f.startCarrying(t, 0, 1)
	trace, said, complaints := f.nodes[0].startTrace(t, "-o", "json", carriedAt[0].String())
	f.begin(1, 0)
	eventually(t, "the trace begins", func() error {
		f.begin(1, 0)
		if said.String() == "" {
			return fmt.Errorf("%q", complaints.String())
		}
		return nil
	})
	begun := map[string]int{}
	kinds := map[string]bool{}
	eventually(t, "connections of both kinds are traced", func() error {
		for _, conn := range f.begin(4, 0) {
			begun[conn.LocalAddr().String()] = 0
		}
		clear(kinds)
		for from := range begun {
			begun[from] = 0
		}
		for d := json.NewDecoder(strings.NewReader(said.String())); d.More(); {
			var one tracedAtDriver
			if d.Decode(&one) != nil {
				break // it is being written
			}
			if _, ours := begun[one.From]; ours {
				begun[one.From]++
				kinds[one.Verdict+" "+one.Where] = true
			}
			carried := one.Verdict == "carried" && one.Got == f.nodes[1].addr.String() && one.NowFrom == f.nodes[0].addr.String() && one.Device == "eth0"
			if one.Asked != carriedAt[0].String()+"/TCP" || one.Service != "default/web:tcp/TCP" || one.Where != "in" || one.Verdict != "" && !carried {
				t.Fatalf("what is %+v?", one)
			}
		}
		missing := 0
		for from, lines := range begun {
			if lines > 1 {
				t.Fatalf("%s has %d lines", from, lines)
			}
			missing += 1 - lines
		}
		if len(kinds) < 2 || missing > 4 { // the last ones may be yet to come
			return fmt.Errorf("of %d connections %d have no line, others are %v", len(begun), missing, kinds)
		}
		return nil
	})
	if err := trace.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := trace.Wait(); err != nil || complaints.String() != "" {
		t.Errorf("headgate trace: %v: %s", err, complaints.String())
	}
	if lines := strings.Count(said.String(), "\n"); lines < len(begun) {
		t.Errorf("%d connections have %d lines", len(begun), lines)
	}
}
