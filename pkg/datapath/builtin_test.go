package datapath

import (
	"bytes"
	"testing"
)

func TestTheBuiltInObjectIsWhatBpf2goWrote(t *testing.T) {
	if !bytes.Equal(builtIn(), _HeadgateBytes) {
		t.Error("headgate_bpfel.o.gz is not headgate_bpfel.o, run make generate and commit")
	}
}
