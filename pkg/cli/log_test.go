package cli

import (
	"errors"
	"strings"
	"testing"
	"unicode"

	"go.uber.org/zap"

	"github.com/headgate/headgate/pkg/agent"
)

// An error may be what somebody else has said.
func TestTheLogHasNothingThatATerminalWouldObey(t *testing.T) {
	for _, format := range []string{"console", "json"} {
		var said strings.Builder
		journal, err := agent.NewJournal("info")
		if err != nil {
			t.Fatal(err)
		}
		log, err := newLogger(&said, journal, format)
		if err != nil {
			t.Fatal(err)
		}
		log.Info("first", zap.Error(errors.New("a\u009b31mb\u202ec\u2066d\x1b[1me\rf\ng")))
		log.Info("second\u202e")
		lines := strings.Split(strings.TrimSuffix(said.String(), "\n"), "\n")
		if len(lines) != 2 || !strings.Contains(lines[0], "first") || !strings.Contains(lines[1], "second") {
			t.Errorf("%s: %q", format, lines)
		}
		for _, r := range strings.Join(lines, "") {
			if r != '\t' && !unicode.IsPrint(r) {
				t.Errorf("%s: %U is in %q", format, r, lines)
			}
		}
	}
}
