package preflight

import "fmt"

// Finding is one line of a report.
type Finding struct {
	Name   string `json:"name"` // of a check, or of a kind of finding
	Level  Level  `json:"level"`
	Found  string `json:"found"`
	Remedy string `json:"remedy,omitempty"` // of each that is not ok
}

// Report is what was found, in the order in which it was looked for.
type Report struct {
	Failures int       `json:"failures"`
	Warnings int       `json:"warnings"`
	Findings []Finding `json:"findings"`
}

// ok adds what is in order.
func (r *Report) ok(check, format string, args ...any) {
	r.Findings = append(r.Findings, Finding{Name: check, Level: OK, Found: fmt.Sprintf(format, args...)})
}

// add adds what is not.
func (r *Report) add(k kind, format string, args ...any) {
	about := kinds[k]
	r.addWith(k, about.Remedy, format, args...)
}

// addWith adds what has a remedy of its own.
func (r *Report) addWith(k kind, remedy, format string, args ...any) {
	about := kinds[k]
	r.Findings = append(r.Findings, Finding{Name: about.Name, Level: about.Level, Found: fmt.Sprintf(format, args...), Remedy: remedy})
	if about.Level == Failure {
		r.Failures++
	} else {
		r.Warnings++
	}
}
