package traffic

import (
	"math"
	"strings"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Latency is a distribution of durations up to ten seconds, exact to three
// digits.
type Latency struct {
	histogram *hdrhistogram.Histogram
}

// NewLatency returns an empty distribution.
func NewLatency() *Latency {
	return &Latency{hdrhistogram.New(1, (10 * time.Second).Nanoseconds(), 3)}
}

// Add records durations in nanoseconds. What is longer than ten seconds counts
// as ten.
func (l *Latency) Add(nanos ...int64) {
	for _, n := range nanos {
		// Within the bounds, recording cannot fail.
		_ = l.histogram.RecordValue(min(n, l.histogram.HighestTrackableValue()))
	}
}

// Count returns the number of durations.
func (l *Latency) Count() int { return int(l.histogram.TotalCount()) }

// Percentile returns the duration that p percent of all do not exceed.
func (l *Latency) Percentile(p float64) time.Duration {
	return time.Duration(l.histogram.ValueAtPercentile(p))
}

// Bar draws a share between 0 and 1 as a bar of at most width characters, in
// eighths of a character.
func Bar(share float64, width int) string {
	eighths := int(math.Round(min(max(share, 0), 1) * float64(width) * 8))
	bar := strings.Repeat("█", eighths/8)
	if rest := eighths % 8; rest > 0 {
		bar += string([]rune("▏▎▍▌▋▊▉")[rest-1])
	}
	return bar
}

// FairBounds returns within which shares of total random choices among n
// backends every backend must stay: a quarter more or less than its due, or
// six standard deviations where few choices make that wider.
func FairBounds(n, total int) (low, high float64) {
	due := 1 / float64(n)
	slack := max(due/4, 6*math.Sqrt(due*(1-due)/float64(max(total, 1))))
	return max(due-slack, 0), min(due+slack, 1)
}
