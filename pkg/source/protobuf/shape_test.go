package protobuf

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
)

func TestEveryShapeKnowsItsFields(t *testing.T) {
	var check func(name string, s *shape)
	check = func(name string, s *shape) {
		known := 0
		for n, f := range s {
			if f.known {
				known++
			}
			if f.within != nil {
				check(name+"."+string(rune('0'+n)), f.within)
			}
		}
		if known == 0 {
			t.Errorf("%s: no field is known: its type is written as another one", name)
		}
	}
	for k, kind := range kinds {
		check(k.Kind, kind.shape)
	}
	check("list", listShape)
	check("envelope", envelopeShape)
}

func TestWhatDoesNotFitIsRefused(t *testing.T) {
	text, number := protowire.AppendTag(nil, 1, protowire.BytesType), protowire.AppendTag(nil, 7, protowire.VarintType)
	meta := kinds[serviceKind].shape[objectMeta].within
	for name, tc := range map[string]struct {
		message string
		fits    bool
	}{
		"nothing":                    {"", true},
		"a name":                     {string(text) + "\x03web", true},
		"a number":                   {string(number) + "\x05", true},
		"a field nobody knows":       {string(protowire.AppendTag(nil, 99, protowire.VarintType)) + "\x05", true},
		"two names":                  {strings.Repeat(string(text)+"\x03web", 2), false},
		"two finalizers":             {strings.Repeat(string(protowire.AppendTag(nil, 14, protowire.BytesType))+"\x03web", 2), true},
		"a number for a name":        {string(protowire.AppendTag(nil, 1, protowire.VarintType)) + "\x05", false},
		"a name that is cut off":     {string(text) + "\x04web", false},
		"a message in which is none": {string(protowire.AppendTag(nil, 8, protowire.BytesType)) + "\x01\x08", false},
		"a group":                    {string(protowire.AppendTag(nil, 99, protowire.StartGroupType)) + string(protowire.AppendTag(nil, 99, protowire.EndGroupType)), false},
	} {
		if got := meta.fits([]byte(tc.message)); got != tc.fits {
			t.Errorf("%s: fits %v", name, got)
		}
	}
}

func TestWhatIsInternedIsBounded(t *testing.T) {
	in := internedBy(text)
	long := strings.Repeat("x", 1<<16)
	for i := range 64 {
		if s := *in.of([]byte(long + string(rune('a'+i)))); s != long+string(rune('a'+i)) {
			t.Fatalf("%d is another one", i)
		}
	}
	if len(in.values) > mostInterned>>16 {
		t.Errorf("%d texts of 64 KiB are remembered", len(in.values))
	}
	if first, again := in.of([]byte("node-a")), in.of([]byte("node-a")); first != again {
		t.Error("the same bytes are read twice")
	}
}
