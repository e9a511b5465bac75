package result

import "maps"

// Pool returns several runs of the same load as one: counts and times are
// added, distributions merged. It has no time line and no events, since the
// runs were not at the same time. Name, load and labels are those of the first
// run. It returns the zero Run for none.
func Pool(runs ...Run) Run {
	if len(runs) == 0 {
		return Run{}
	}
	pooled := Run{Name: runs[0].Name, Labels: maps.Clone(runs[0].Labels), Load: runs[0].Load, Started: runs[0].Started}
	backends := make(map[string]Backend)
	for i := range runs {
		pooled.add(&runs[i])
		for _, b := range runs[i].Backends {
			sum := backends[b.Name]
			backends[b.Name] = Backend{Name: b.Name, Choices: sum.Choices + b.Choices, Answers: sum.Answers + b.Answers}
		}
	}
	pooled.SetBackends(backends)
	return pooled
}

func (r *Run) add(other *Run) {
	r.Elapsed += other.Elapsed
	r.CPU += other.CPU
	r.Interrupted = r.Interrupted || other.Interrupted
	r.Limited = r.Limited || other.Limited
	r.Due += other.Due
	r.Completed += other.Completed
	r.Failed += other.Failed
	r.InTime += other.InTime
	r.Broken += other.Broken
	r.Drill = r.Drill.add(other.Drill)
	r.Bytes.Sent += other.Bytes.Sent
	r.Bytes.Received += other.Bytes.Received
	for kind, count := range other.Errors {
		if r.Errors == nil {
			r.Errors, r.ErrorExamples = make(map[ErrorKind]uint64), make(map[ErrorKind]string)
		}
		r.Errors[kind] += count
		if r.ErrorExamples[kind] == "" {
			r.ErrorExamples[kind] = other.ErrorExamples[kind]
		}
	}
	if p := other.Packets; p != nil {
		sum := Packets{}
		if r.Packets != nil {
			sum = *r.Packets
		}
		r.Packets = &Packets{
			Sent: sum.Sent + p.Sent, Received: sum.Received + p.Received, Unknown: sum.Unknown + p.Unknown,
			Senders: sum.Senders + p.Senders, Reports: sum.Reports + p.Reports,
		}
	}
	if other.Use != nil {
		if r.Use == nil {
			r.Use = new(Use)
		}
		r.Use.add(other.Use)
	}
	r.Latency = merged(r.Latency, other.Latency)
	r.Service = merged(r.Service, other.Service)
	r.Lateness = merged(r.Lateness, other.Lateness)
}

// merged adds b to a, which may be nil, and leaves b as it is.
func merged(a, b *Histogram) *Histogram {
	if b == nil {
		return a
	}
	if a == nil {
		a = NewHistogram()
	}
	a.Merge(b)
	return a
}
