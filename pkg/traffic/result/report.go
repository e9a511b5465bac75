package result

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/headgate/headgate/pkg/lb"
)

// Schema names the version of the JSON. A reader refuses another one.
const Schema = "headgate.bench/1"

// Report is everything that one command measured.
type Report struct {
	Schema string `json:"schema"`
	Meta   Meta   `json:"meta"`
	Runs   []Run  `json:"runs"`
}

// NewReport returns a report without runs.
func NewReport(meta Meta) *Report { return &Report{Schema: Schema, Meta: meta} }

// Write writes the report as JSON.
func (r *Report) Write(w io.Writer) error {
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", " ")
	return encoder.Encode(r)
}

// WriteFile writes the report to a file, which is there whole or not at all.
func (r *Report) WriteFile(path string) error {
	partial := path + ".partial"
	f, err := os.Create(partial)
	if err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	err = r.Write(f)
	if closed := f.Close(); err == nil {
		err = closed
	}
	if err == nil {
		err = os.Rename(partial, path)
	}
	if err != nil {
		_ = os.Remove(partial)
		return fmt.Errorf("write report %s: %w", path, err)
	}
	return nil
}

// Read reads a report and refuses what is none. All text of it is printable: a file may
// be anybody's, and a newline in a name would be a line of a table.
func Read(r io.Reader) (*Report, error) {
	var anything any
	decoder := json.NewDecoder(r)
	decoder.UseNumber()
	if err := decoder.Decode(&anything); err != nil {
		return nil, fmt.Errorf("read report: %w", err)
	}
	text, err := json.Marshal(printable(anything))
	if err != nil {
		return nil, fmt.Errorf("read report: %w", err)
	}
	var report Report
	if err := json.Unmarshal(text, &report); err != nil {
		return nil, fmt.Errorf("read report: %w", err)
	}
	if report.Schema != Schema {
		return nil, fmt.Errorf("read report: schema is %q, this version reads %q", report.Schema, Schema)
	}
	return &report, nil
}

// printable returns what JSON says with printable text.
func printable(v any) any {
	switch v := v.(type) {
	case string:
		return lb.Printable(v)
	case []any:
		for i := range v {
			v[i] = printable(v[i])
		}
	case map[string]any:
		out := make(map[string]any, len(v))
		for key, value := range v {
			out[lb.Printable(key)] = printable(value)
		}
		return out
	}
	return v
}

// ReadFile reads the report in a file.
func ReadFile(path string) (*Report, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read report: %w", err)
	}
	defer f.Close()
	report, err := Read(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return report, nil
}

// Meta is where, when and with what figures were measured. It says nothing of
// who did it: no host name, no path.
type Meta struct {
	Command      []string  `json:"command"` // as typed, the program's name without its folder
	Started      time.Time `json:"started"` // UTC
	Ended        time.Time `json:"ended"`   // UTC
	Kernel       string    `json:"kernel"`
	Architecture string    `json:"architecture"` // as Go calls it: amd64
	CPU          string    `json:"cpu"`          // the model
	CPUs         int       `json:"cpus"`         // those this process may use
	// Load averages over 1, 5 and 15 minutes, before the first run and after
	// the last: how busy the machine was with other things, and with this.
	LoadBefore [3]float64 `json:"load_average_before"`
	LoadAfter  [3]float64 `json:"load_average_after"`
	// Versions are those of all that took part: headgate, go, contenders.
	Versions map[string]string `json:"versions"`
	// System is what else decides the figures: clock source, mitigations.
	System map[string]string `json:"system"`
}
