package result

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Longest is the longest duration that a Histogram tells from longer ones.
const Longest = 2 * time.Minute

// digits is how many digits of a duration a Histogram keeps.
const digits = 3

// Percentiles are those that a Histogram writes into its JSON.
var percentiles = []float64{50, 75, 90, 95, 99, 99.9, 99.99}

// Histogram is a distribution of durations from 1 ns to Longest, exact to
// three digits. It is not safe for use by several goroutines.
type Histogram struct {
	h *hdrhistogram.Histogram
}

// NewHistogram returns an empty distribution.
func NewHistogram() *Histogram {
	return &Histogram{hdrhistogram.New(1, Longest.Nanoseconds(), digits)}
}

// Add records a duration. What is longer than Longest counts as Longest, what
// is not positive as 0.
func (h *Histogram) Add(d time.Duration) {
	// Within the bounds, recording cannot fail.
	_ = h.h.RecordValue(min(max(d.Nanoseconds(), 0), h.h.HighestTrackableValue()))
}

// Merge adds all that other has. Both have the same buckets, so nothing is
// lost: percentiles are those of all samples.
func (h *Histogram) Merge(other *Histogram) {
	if other != nil {
		h.h.Merge(other.h)
	}
}

// Count returns the number of durations.
func (h *Histogram) Count() uint64 { return uint64(h.h.TotalCount()) }

// Percentile returns the duration that p percent of all do not exceed, 0 if
// there is none.
func (h *Histogram) Percentile(p float64) time.Duration {
	return time.Duration(h.h.ValueAtPercentile(p))
}

// Mean returns the arithmetic mean, to the width of the buckets.
func (h *Histogram) Mean() time.Duration { return time.Duration(h.h.Mean()) }

// Min and Max return the shortest and the longest duration, to the width of
// their bucket.
func (h *Histogram) Min() time.Duration { return time.Duration(h.h.Min()) }

// Max returns the longest duration: see Min.
func (h *Histogram) Max() time.Duration { return time.Duration(h.h.Max()) }

// Bucket is how many durations are at most UpTo, and longer than the UpTo of
// the bucket before.
type Bucket struct {
	UpTo  time.Duration
	Count uint64
}

// Buckets returns the buckets that are not empty, the shortest first.
func (h *Histogram) Buckets() []Bucket {
	var buckets []Bucket
	for _, bar := range h.h.Distribution() {
		if bar.Count > 0 {
			buckets = append(buckets, Bucket{UpTo: time.Duration(bar.To), Count: uint64(bar.Count)})
		}
	}
	return buckets
}

// histogramJSON is a Histogram in JSON. Reading needs the buckets only, the
// rest is for people and for programs that have no use for buckets.
type histogramJSON struct {
	Count       uint64           `json:"count"`
	Min         int64            `json:"min_ns"`
	Mean        int64            `json:"mean_ns"`
	Deviation   int64            `json:"standard_deviation_ns"`
	Max         int64            `json:"max_ns"`
	Percentiles map[string]int64 `json:"percentiles_ns"` // "p99.9": what 99.9 % do not exceed
	UpTo        []int64          `json:"buckets_up_to_ns"`
	Counts      []uint64         `json:"buckets_count"`
}

// MarshalJSON writes the buckets that are not empty, and what follows from
// them.
func (h *Histogram) MarshalJSON() ([]byte, error) {
	j := histogramJSON{
		Count: h.Count(), Percentiles: make(map[string]int64), UpTo: []int64{}, Counts: []uint64{},
	}
	if j.Count > 0 {
		j.Min, j.Max = h.h.Min(), h.h.Max()
		j.Mean, j.Deviation = int64(h.h.Mean()), int64(h.h.StdDev())
		for _, p := range percentiles {
			j.Percentiles[fmt.Sprintf("p%v", p)] = h.h.ValueAtPercentile(p)
		}
	}
	for _, b := range h.Buckets() {
		j.UpTo = append(j.UpTo, int64(b.UpTo))
		j.Counts = append(j.Counts, b.Count)
	}
	return json.Marshal(j)
}

// UnmarshalJSON reads the buckets.
func (h *Histogram) UnmarshalJSON(text []byte) error {
	var j histogramJSON
	if err := json.Unmarshal(text, &j); err != nil {
		return err
	}
	if len(j.UpTo) != len(j.Counts) {
		return fmt.Errorf("histogram: %d buckets_up_to_ns, but %d buckets_count", len(j.UpTo), len(j.Counts))
	}
	read := NewHistogram()
	for i, upTo := range j.UpTo {
		if err := read.h.RecordValues(upTo, int64(j.Counts[i])); err != nil {
			return fmt.Errorf("histogram: bucket up to %d ns: %s", upTo, err)
		}
	}
	*h = *read
	return nil
}
