package cli

import (
	"hash/maphash"
	"strconv"
	"time"

	"github.com/headgate/headgate/pkg/datapath"
)

// trafficRates is how traffic grows; nil where that is not known.
type trafficRates struct {
	BytesToPerSecond   *rate `json:"bytesToPerSecond,omitempty"`
	BytesFromPerSecond *rate `json:"bytesFromPerSecond,omitempty"`
	FailedPerSecond    *rate `json:"failedPerSecond,omitempty"`
}

func (t trafficRates) plus(other trafficRates) trafficRates {
	return trafficRates{
		plus(t.BytesToPerSecond, other.BytesToPerSecond),
		plus(t.BytesFromPerSecond, other.BytesFromPerSecond),
		plus(t.FailedPerSecond, other.FailedPerSecond),
	}
}

// trafficCounts is what has to be remembered of traffic from one reading to the next.
type trafficCounts struct{ to, from, failed uint64 }

// ofTraffic returns how fast traffic has grown since the reading before, in which the connections of
// the same were counted.
func (r *rates) ofTraffic(what string, t datapath.Traffic) trafficRates {
	if r == nil {
		return trafficRates{}
	}
	key := maphash.String(r.seed, what)
	is := trafficCounts{t.BytesTo, t.BytesFrom, t.Failed.Sum()}
	if is != (trafficCounts{}) {
		r.traffic[key] = is
	}
	_, known := r.were[key]
	was := r.hadTraffic[key]
	return trafficRates{r.grown(was.to, known, is.to), r.grown(was.from, known, is.from), r.grown(was.failed, known, is.failed)}
}

// size is so many bytes, or so many in a second.
type size float64

// String has a unit above 1023 B, and less than ten with one decimal.
func (s size) String() string {
	units := []string{" B", " KiB", " MiB", " GiB", " TiB"}
	for len(units) > 1 && s >= 1023.5 {
		s, units = s/1024, units[1:]
	}
	digits := 0
	if s < 9.95 && units[0] != " B" {
		digits = 1
	}
	return strconv.FormatFloat(float64(s), 'f', digits, 64) + units[0]
}

// size returns a rate of bytes as columns have it.
func (r *rate) size() any {
	if r == nil {
		return nil
	}
	return size(*r)
}

// connectTimes is how long connects have taken: half of them, and 99 of 100, at the most.
type connectTimes struct {
	Connections uint64        `json:"connections"`
	Half        time.Duration `json:"p50Ns"`
	Nearly      time.Duration `json:"p99Ns"`
}

func newConnectTimes(c *datapath.ConnectTimes) *connectTimes {
	if c.Count() == 0 {
		return nil
	}
	return &connectTimes{c.Count(), c.Within(0.5), c.Within(0.99)}
}

// cell returns them as columns have them.
func (c *connectTimes) cell() any {
	if c == nil {
		return nil
	}
	return shortTime(c.Half) + " / " + shortTime(c.Nearly)
}

// half returns how long half of them took, as columns have it.
func (c *connectTimes) half() any {
	if c == nil {
		return nil
	}
	return c.Half.Round(time.Microsecond)
}

// shortTime has no more digits than a bound of a bucket is worth.
func shortTime(d time.Duration) string {
	for _, unit := range []time.Duration{time.Second, time.Millisecond, time.Microsecond} {
		if d >= 10*unit {
			return d.Round(unit).String()
		}
	}
	return d.Round(time.Microsecond / 10).String()
}
