package netdev

import (
	"fmt"
	"testing"
)

func TestEntriesThatMakeNoSenseAreNotRead(t *testing.T) {
	for _, f := range []xtFamily{xtIP4, xtIP6} {
		entry := make([]byte, 300)
		for _, at := range []struct{ target, next uint16 }{{0, 0}, {200, 100}, {200, 400}, {290, 300}, {200, 220}} {
			entry[f.offsets], entry[f.offsets+1] = byte(at.target), byte(at.target>>8)
			entry[f.offsets+2], entry[f.offsets+3] = byte(at.next), byte(at.next>>8)
			if got := f.chainNames(entry); got != nil {
				t.Errorf("%s: %+v has the chains %q", f.name, at, got)
			}
		}
	}
	if _, err := parseChain([]byte{1}); err == nil || fmt.Sprint(err) != "a message of 1 bytes" {
		t.Errorf("a message without a head: %v", err)
	}
}
