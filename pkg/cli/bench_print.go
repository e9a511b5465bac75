package cli

import (
	"io"

	"github.com/headgate/headgate/pkg/traffic/result"
)

// printReport writes a report in the form that was asked for.
func (e *env) printReport(w io.Writer, report *result.Report) error {
	if e.json || e.pretty {
		return report.Write(w)
	}
	return report.WriteTable(w)
}
