package datapath

import (
	"bytes"
	"testing"
)

func TestTheBuiltInObjectsAreWhatBpf2goWrote(t *testing.T) {
	for name, object := range map[string]struct{ compressed, written []byte }{
		"headgate_bpfel.o": {compressed, _HeadgateBytes}, "tracer_bpfel.o": {compressedTracer, _TracerBytes},
	} {
		if !bytes.Equal(builtIn(object.compressed), object.written) {
			t.Errorf("%s.gz is not %[1]s, run make generate and commit", name)
		}
	}
}
