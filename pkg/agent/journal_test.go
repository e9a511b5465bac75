package agent

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap/zapcore"
)

func TestALevelOfTheLogIsInForceForATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j, err := NewJournal("warn")
		if err != nil {
			t.Fatal(err)
		}
		set := func(level string, lasts time.Duration) {
			t.Helper()
			if _, err := j.setLevel(inTime, level, lasts); err != nil {
				t.Fatal(err)
			}
		}
		is := func(when string, want zapcore.Level) {
			t.Helper()
			if got := j.Level.Level(); got != want {
				t.Errorf("%s: %v, want %v", when, got, want)
			}
		}
		set("debug", time.Minute)
		if l := j.level(); l.Level != "debug" || l.Usual != "warn" || !l.Until.Equal(time.Now().Add(time.Minute)) {
			t.Errorf("it says %+v", l)
		}
		time.Sleep(59 * time.Second)
		is("before the time is over", zapcore.DebugLevel)
		set("error", time.Minute)
		time.Sleep(59 * time.Second)
		is("when the time before is over", zapcore.ErrorLevel)
		time.Sleep(2 * time.Second)
		is("when the time is over", zapcore.WarnLevel)
		set("info", 0)
		time.Sleep(time.Hour)
		is("without a time", zapcore.InfoLevel)
		if _, err := j.setLevel(inTime, "loud", 0); err == nil || !strings.Contains(err.Error(), `"loud": write debug, info, warn or error`) {
			t.Errorf("a level that there is not: %v", err)
		}
	})
}

// inTime is begin of an order that comes in time.
func inTime() error { return nil }

func TestTheJournalHasTheLastLinesWhole(t *testing.T) {
	j, err := NewJournal("info")
	if err != nil {
		t.Fatal(err)
	}
	const lines = 100_000
	for i := range lines {
		fmt.Fprintf(j, "line %d\n", i)
	}
	tail := string(j.tail())
	if first, _, _ := strings.Cut(tail, "\n"); !strings.HasPrefix(first, "line ") || len(tail) > journalBytes || len(tail) < journalBytes-20 || !strings.HasSuffix(tail, fmt.Sprintf("line %d\n", lines-1)) {
		t.Errorf("%d bytes from %q on", len(tail), first)
	}
	if len(j.lines) > 3*journalBytes {
		t.Errorf("%d bytes are kept", len(j.lines))
	}
}
