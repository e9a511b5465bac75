package cli

import (
	"slices"
	"testing"
)

func TestKeysAreReadOfWhatATerminalSends(t *testing.T) {
	for _, tc := range []struct {
		sent  string
		atEnd bool
		want  []key
		begun string
	}{
		{"qA/", false, []key{'q', 'A', '/'}, ""},
		{"\r\x7f\x03\x1a\x00", false, []key{keyEnter, keyBackspace, keyQuit, keySuspend}, ""},
		{"\x1b[A\x1bOB\x1b[5~\x1b[6~\x1b[H\x1b[F", false, []key{keyUp, keyDown, keyPageUp, keyPageDown, keyHome, keyEnd}, ""},
		{"\x1b[1;5Cq", false, []key{'q'}, ""}, // a key that means nothing
		{"\x1b", false, nil, "\x1b"},
		{"q\x1b[5", false, []key{'q'}, "\x1b[5"},
		{"\x1b", true, []key{keyEscape}, ""},
		{"\x1b[", true, []key{keyEscape, '['}, ""},
		{"\x1b\x1b", true, []key{keyEscape, keyEscape}, ""},
		{"\x1bq", false, []key{keyEscape, 'q'}, ""},
		{"é\xc3", false, []key{'é'}, "\xc3"},
		{"\xc3", true, nil, ""},
		{"\xff", false, nil, ""},
	} {
		got, begun := decodeKeys([]byte(tc.sent), tc.atEnd)
		if !slices.Equal(got, tc.want) || string(begun) != tc.begun {
			t.Errorf("%q: keys %d, begun %q, want %d and %q", tc.sent, got, begun, tc.want, tc.begun)
		}
	}
}

// FuzzKeys reads whatever a terminal may send: what is read comes to an end.
func FuzzKeys(f *testing.F) {
	f.Add([]byte("\x1b[1;5Cq\x1bO"))
	f.Fuzz(func(t *testing.T, sent []byte) {
		_, begun := decodeKeys(sent, false)
		if _, begun := decodeKeys(begun, true); len(begun) > 0 {
			t.Errorf("%q leaves %q", sent, begun)
		}
	})
}
