package agent

import (
	"fmt"
	"sync"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/headgate/headgate/pkg/lb"
)

// journalBytes is how much of the end of its log an agent has at hand.
const journalBytes = 256 << 10

// Journal is what can be asked of an agent's log: its last lines, and from which severity on
// it has any, which may be another one for a time. Each Write to it is a line or some.
type Journal struct {
	Level zap.AtomicLevel
	usual zapcore.Level

	mu    sync.Mutex
	lines []byte
	until time.Time // zero where the level stays
	sets  int       // how often it was set
}

// NewJournal returns one without lines. An error says which levels there are.
func NewJournal(level string) (*Journal, error) {
	l, err := parseLevel(level)
	if err != nil {
		return nil, fmt.Errorf("--log-level %w", err)
	}
	return &Journal{Level: zap.NewAtomicLevelAt(l), usual: l}, nil
}

// LogLevels are those that an agent may have.
var LogLevels = []string{"debug", "info", "warn", "error"}

func parseLevel(word string) (zapcore.Level, error) {
	l, err := zapcore.ParseLevel(word)
	if err != nil {
		return l, fmt.Errorf("%s: write debug, info, warn or error", lb.Quote(word))
	}
	return l, nil
}

// Write implements io.Writer.
func (j *Journal) Write(line []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, line...)
	if over := len(j.lines) - journalBytes; over > journalBytes { // cut once for many lines
		j.lines = append([]byte(nil), j.lines[over:]...)
	}
	return len(line), nil
}

// tail returns the last lines, whole.
func (j *Journal) tail() []byte {
	j.mu.Lock()
	defer j.mu.Unlock()
	from := max(0, len(j.lines)-journalBytes)
	for from > 0 && from < len(j.lines) && j.lines[from-1] != '\n' {
		from++
	}
	return append([]byte(nil), j.lines[from:]...)
}

// LogLevel is from which severity on an agent logs.
type LogLevel struct {
	Level string    `json:"level"`
	Usual string    `json:"usual"` // as the agent was told when it began
	Until time.Time `json:"until,omitzero"`
}

// level returns what is logged now.
func (j *Journal) level() LogLevel {
	j.mu.Lock()
	defer j.mu.Unlock()
	return LogLevel{Level: j.Level.String(), Usual: j.usual.String(), Until: j.until}
}

// setLevel sets another level, for some time or, with 0, until the agent ends. It does not where begin fails.
func (j *Journal) setLevel(begin func() error, word string, lasts time.Duration) (LogLevel, error) {
	l, err := parseLevel(word)
	if err != nil {
		return LogLevel{}, err
	}
	j.mu.Lock()
	if err := begin(); err != nil {
		j.mu.Unlock()
		return LogLevel{}, err
	}
	j.sets++
	j.until = time.Time{}
	j.Level.SetLevel(l)
	if set := j.sets; lasts > 0 {
		j.until = time.Now().Add(lasts)
		time.AfterFunc(lasts, func() { j.giveBack(set) })
	}
	j.mu.Unlock()
	return j.level(), nil
}

// giveBack puts the usual level in force, unless another was set since.
func (j *Journal) giveBack(set int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.sets == set {
		j.until = time.Time{}
		j.Level.SetLevel(j.usual)
	}
}
