package load

import (
	"math"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/headgate/headgate/pkg/traffic/result"
)

// merge adds what all senders have seen to a run.
func merge(run *result.Run, records []*record) {
	run.Errors, run.ErrorExamples = make(map[result.ErrorKind]uint64), make(map[result.ErrorKind]string)
	run.Latency, run.Service, run.Lateness = result.NewHistogram(), result.NewHistogram(), result.NewHistogram()
	backends := make(map[string]result.Backend)
	for _, r := range records {
		run.Elapsed = max(run.Elapsed, time.Duration(r.end-r.begin))
		run.Due += r.due
		run.Completed += r.completed
		run.InTime += r.inTime
		run.Broken += r.broken
		run.Bytes.Sent += r.bytes.Sent
		run.Bytes.Received += r.bytes.Received
		for kind, count := range r.failed {
			run.Errors[kind] += count
			run.Failed += count
			if run.ErrorExamples[kind] == "" && r.examples[kind] != "" {
				run.ErrorExamples[kind] = r.examples[kind]
			}
		}
		run.Latency.Merge(r.latency)
		run.Service.Merge(r.service)
		run.Lateness.Merge(r.late)
		if r.lastFailed >= r.begin {
			run.LastFailed = max(run.LastFailed, time.Duration(r.lastFailed-r.begin))
		}
		for name, b := range r.backends {
			backends[name] = b.add(name, r.begin, backends[name])
		}
	}
	run.SetBackends(backends)
	run.TimeLine = timeLine(run, records)
}

// add returns what came from a server in all, sum being that of other senders.
func (b *backend) add(name string, begin int64, sum result.Backend) result.Backend {
	added := result.Backend{Name: name, Choices: sum.Choices + b.choices, Answers: sum.Answers + b.answers, First: sum.First, Last: sum.Last}
	if first := time.Duration(b.first - begin); b.first < math.MaxInt64 && (sum.First == nil || first < *sum.First) {
		added.First = &first
	}
	if last := time.Duration(b.last - begin); b.choices > 0 && (sum.Choices == 0 || last > sum.Last) {
		added.Last = last
	}
	return added
}

// timeLine merges the points, up to the last in which something happened.
func timeLine(run *result.Run, records []*record) []result.Point {
	var line []result.Point
	last := 0
	latency := hdrhistogram.New(1, result.Longest.Microseconds(), 2)
	for i := range records[0].points {
		p := result.Point{At: time.Duration(i) * run.Interval}
		latency.Reset()
		for _, r := range records {
			q := &r.points[i]
			p.Due += q.due
			p.Completed += q.completed
			p.Failed += q.failed
			p.DueFailed += q.dueFailed
			p.Broken += q.broken
			p.Bytes += q.bytes
			if q.latency != nil {
				latency.Merge(q.latency)
			}
		}
		if latency.TotalCount() > 0 {
			p.P50 = time.Duration(latency.ValueAtPercentile(50)) * time.Microsecond
			p.P99 = time.Duration(latency.ValueAtPercentile(99)) * time.Microsecond
			p.Max = time.Duration(latency.Max()) * time.Microsecond
		}
		line = append(line, p)
		if p.At < run.Elapsed || p.Failed > 0 {
			last = len(line)
		}
	}
	return line[:last]
}
