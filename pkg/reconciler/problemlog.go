package reconciler

import (
	"time"

	"go.uber.org/zap"

	"github.com/headgate/headgate/pkg/lb"
)

// linesPerSecond is how many lines problems may write to a ProblemLog.
const linesPerSecond = 50

// ProblemLog logs problems that are new, and those that are solved.
type ProblemLog struct {
	log   *zap.Logger
	said  map[string]bool
	began time.Time // of the second in which lines were written
	lines int
}

// NewProblemLog returns one that knows of no problem.
func NewProblemLog(log *zap.Logger) *ProblemLog { return &ProblemLog{log: log} }

// Set says everything that is wrong now.
func (l *ProblemLog) Set(problems []lb.Problem) {
	now := map[string]bool{}
	for _, p := range problems {
		text := p.Error()
		if !l.said[text] && !now[text] && l.hasRoom() {
			l.log.Warn("problem", zap.String("problem", text))
		}
		now[text] = true
	}
	for text := range l.said {
		if !now[text] && l.hasRoom() {
			l.log.Info("problem solved", zap.String("problem", text))
		}
	}
	l.said = now
}

// hasRoom says whether there is room in the log for another line about problems, and
// tells once a second where there is none.
func (l *ProblemLog) hasRoom() bool {
	if now := time.Now(); now.Sub(l.began) >= time.Second {
		l.began, l.lines = now, 0
	}
	l.lines++
	if l.lines == linesPerSecond+1 {
		l.log.Warn("problems change faster than the log may have lines: headgate status shows those that stand")
	}
	return l.lines <= linesPerSecond
}
