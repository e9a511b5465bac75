package result

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// WriteTable writes the report for people.
func (r *Report) WriteTable(w io.Writer) error {
	m := r.Meta
	fmt.Fprintf(w, "%s · %s, %d CPUs, kernel %s · load %.2f before, %.2f after\n",
		m.Started.UTC().Format("2 January 2006, 15:04 UTC"), m.CPU, m.CPUs, m.Kernel, m.LoadBefore[0], m.LoadAfter[0])
	for i := range r.Runs {
		fmt.Fprintln(w)
		if err := r.Runs[i].WriteTable(w); err != nil {
			return err
		}
	}
	return nil
}

// WriteTable writes one run for people: each line is a name and what there is
// to say.
func (r *Run) WriteTable(w io.Writer) error {
	if _, err := fmt.Fprintln(w, r.title()); err != nil {
		return err
	}
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, line := range r.lines() {
		fmt.Fprintf(tw, "  %s\t%s\n", line[0], line[1])
	}
	return tw.Flush()
}

func (r *Run) title() string {
	title := cmp.Or(r.Name, r.Load.Kind)
	for _, key := range slices.Sorted(maps.Keys(r.Labels)) {
		title += fmt.Sprintf(", %s %s", key, r.Labels[key])
	}
	if r.Interrupted {
		title += " (interrupted: this is what was measured until then)"
	}
	return title
}

// lines are name and text of what a table has.
func (r *Run) lines() [][2]string {
	lines := [][2]string{{"load", r.Load.String()}, {"rate", r.rateText()}}
	add := func(name, text string) {
		if text != "" {
			lines = append(lines, [2]string{name, text})
		}
	}
	if r.Latency != nil && r.Latency.Count() > 0 {
		add("latency", r.Latency.String())
		if r.Load.Loop == "open" {
			add("service", r.Service.String())
			add("lateness", r.Lateness.String())
		}
	}
	add("errors", r.ErrorText())
	if r.Broken > 0 {
		add("broken", fmt.Sprintf("%d established connections lost", r.Broken))
	}
	add("packets", r.packetText())
	add("backends", r.backendText())
	add("fairness", r.Fairness.String())
	for _, e := range r.Events {
		add("event", strings.TrimSpace(fmt.Sprintf("at %s: %s (%s) %s", short(e.At), e.Name, short(e.Took), e.Detail)))
	}
	add("drill", r.Drill.String())
	add("churn", r.Churn.String())
	add("CPU", r.useText())
	add("memory", r.memoryText())
	add("generator", r.generatorText())
	return lines
}

// String is the load in a line.
func (l Load) String() string {
	pace := "closed loop"
	if l.Loop == "open" {
		pace = fmt.Sprintf("open loop, %s/s %s", number(l.Rate), l.Arrivals)
	}
	to := "to"
	if l.Download {
		to = "from"
	}
	text := fmt.Sprintf("%s %s %s, %s", l.Kind, to, targetText(l.Targets), pace)
	if l.Connections > 0 {
		text += fmt.Sprintf(", %d connections at most", l.Connections)
	}
	text += fmt.Sprintf(", %d senders, %s", l.Senders, short(l.Duration))
	if l.WarmUp > 0 {
		text += fmt.Sprintf(" after %s warm-up", short(l.WarmUp))
	}
	return text
}

// targetText is the first few targets.
func targetText(targets []string) string {
	const few = 4
	if len(targets) <= few {
		return strings.Join(targets, " ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(targets[:few], " "), len(targets)-few)
}

func (r *Run) rateText() string {
	rate := number(r.PerSecond())
	switch {
	case r.Load.Kind == "bulk":
		return fmt.Sprintf("%.3f Gbit/s in %s", r.PerSecond()*8/1e9, short(r.Elapsed))
	case r.Packets != nil:
		return fmt.Sprintf("%s packets/s received in %s", rate, short(r.Elapsed))
	}
	text := fmt.Sprintf("%s/s: %d completed in %s", rate, r.Completed, short(r.Elapsed))
	if r.Load.Loop == "open" {
		text += fmt.Sprintf(" of %d due", r.Due)
	}
	return text
}

// String is the usual percentiles in a line.
func (h *Histogram) String() string {
	if h == nil || h.Count() == 0 {
		return ""
	}
	text := ""
	for _, p := range []float64{50, 90, 99, 99.9, 99.99} {
		text += fmt.Sprintf("p%v %s  ", p, short(h.Percentile(p)))
	}
	return text + "max " + short(h.Max())
}

// ErrorText is the number of errors of each kind, with an example.
func (r *Run) ErrorText() string {
	var parts []string
	for _, kind := range slices.Sorted(maps.Keys(r.Errors)) {
		part := fmt.Sprintf("%d %s", r.Errors[kind], kind)
		if example := r.ErrorExamples[kind]; example != "" {
			part += fmt.Sprintf(" (%s)", example)
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, ", ")
}

func (r *Run) packetText() string {
	p := r.Packets
	if p == nil {
		return ""
	}
	text := fmt.Sprintf("%d sent, %d received, %.3f %% lost", p.Sent, p.Received, 100*lossShare(p))
	if p.Unknown > 0 {
		text += fmt.Sprintf("; %d more without a server's count (%d of %d flows are accounted for)", p.Unknown, p.Reports, p.Senders)
	}
	return text
}

// lossShare is the share of lost packets of those that are accounted for.
func lossShare(p *Packets) float64 {
	known := p.Sent - min(p.Unknown, p.Sent)
	if known == 0 || p.Received >= known {
		return 0
	}
	return float64(known-p.Received) / float64(known)
}

// backendText lists the backends, or how many they are.
func (r *Run) backendText() string {
	if len(r.Backends) > 12 {
		return fmt.Sprintf("%d answered", len(r.Backends))
	}
	var parts []string
	for _, b := range r.Backends {
		parts = append(parts, fmt.Sprintf("%s %d", b.Name, b.Choices))
	}
	return strings.Join(parts, ", ")
}

// String is the statistics in a line.
func (f *Fairness) String() string {
	if f == nil || f.Backends < 2 {
		return ""
	}
	return fmt.Sprintf("max/mean %.3f, chi-square %.1f with %d degrees of freedom, p %.3g, of %d choices",
		f.MaxOverMean, f.ChiSquare, f.Backends-1, f.P, f.Choices)
}

func (r *Run) generatorText() string {
	text := fmt.Sprintf("%s of CPU time", short(r.CPU))
	if r.Ceiling == nil {
		return text
	}
	text += fmt.Sprintf("; ceiling %s/s (%s)", number(r.Ceiling.PerSecond), r.Ceiling.How)
	if r.Limited {
		text += "; LIMITED: the result is within 80 % of the ceiling and says as much about the generator"
	}
	return text
}

// number is a number with its thousands apart.
func number(x float64) string {
	text := fmt.Sprintf("%.0f", x)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// short is a duration in three digits.
func short(d time.Duration) string {
	digit := time.Duration(1) // what one of the third digit is worth
	for d/digit >= 1000 {
		digit *= 10
	}
	return d.Round(digit).String()
}
