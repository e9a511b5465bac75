package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/statefile"
)

// DefaultStateDir is where agents keep what outlives them, unless told otherwise.
const DefaultStateDir = "/var/lib/headgate"

// These are within the state directory.
const (
	reportFile  = "report.json"
	serversFile = "api-servers.json"
	nodeFile    = "node.json"
	healthFile  = "health.json"
	hashKeyFile = "hash-key"
)

// stateFile returns the path of a file that outlives an agent, "" for nowhere.
func (c Config) stateFile(name string) string {
	if c.StateDir == "" {
		return ""
	}
	return filepath.Join(c.StateDir, name)
}

// StateFiles returns the paths of the files that agents have left in a state directory, also of those that
// a killed one was about to write.
func StateFiles(stateDir string) (all []string, err error) {
	for _, pattern := range []string{"*.json*", hashKeyFile + "*"} {
		found, err := filepath.Glob(filepath.Join(stateDir, pattern))
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	return all, nil
}

// Report is what a running agent says to those who cannot ask it, such as
// headgate status: what the kernel does not know.
type Report struct {
	BPFRoot string `json:"bpfRoot"` // of the agent, since a directory may have served another
	// Problems is everything that is wrong now. Older versions have lines in "problems".
	Problems []Problem `json:"standing"`
	// Unserved are the Services, such as default/web, of which nothing is in force because of a problem of the node.
	Unserved []string `json:"unserved,omitempty"`
	// Sockets is how those of a lost backend are told of it, "" as long as
	// nobody had to know.
	Sockets string `json:"sockets,omitempty"`
	// XDP is the devices whose driver is to repeat what was done to packets and does not,
	// by name, and why. TC does all there.
	XDP map[string]string `json:"xdp,omitempty"`
	// Conntrack says that the agent has set something of the kernel's connection
	// tracking, which stays when it ends.
	Conntrack bool `json:"conntrack,omitempty"`
	// Peers are the nodes that carried packets are for, and what is known of them.
	Peers []Peer `json:"peers,omitempty"`
	// Contact is with the API server, nil for an agent that asks none.
	Contact *Contact `json:"contact,omitempty"`
}

// Problem is something that is wrong, for people and programs. The other fields are those of lb.Problem.
type Problem struct {
	Scope  string    `json:"scope"` // see lb.Scope
	File   string    `json:"file,omitempty"`
	Object string    `json:"object,omitempty"`
	Field  string    `json:"field,omitempty"`
	Value  string    `json:"value,omitempty"`
	Reason string    `json:"reason"`
	Remedy string    `json:"remedy,omitempty"`
	Since  time.Time `json:"since"`   // as far as this agent knows
	Text   string    `json:"problem"` // all of it in one line
}

// standing returns problems as the report has them: those of before have stood since then.
func standing(all []lb.Problem, before []Problem, now time.Time) []Problem {
	since := make(map[string]time.Time, len(before))
	for i := range before {
		since[before[i].Text] = before[i].Since
	}
	out := make([]Problem, len(all))
	for i, p := range all {
		out[i] = Problem{p.Scope.String(), p.File, p.Object, p.Field, p.Value, p.Reason, p.Remedy, now, p.Error()}
		if stood, ok := since[out[i].Text]; ok {
			out[i].Since = stood
		}
	}
	return out
}

// write replaces the report in a directory, which is made if missing.
func (r Report) write(dir string) error {
	body, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return statefile.Replace(filepath.Join(dir, reportFile), append(body, '\n'))
}

// ReadReport returns what the agent of a BPF root has written last; nothing
// where there is none.
func ReadReport(dir, bpfRoot string) (Report, error) {
	body, err := os.ReadFile(filepath.Join(dir, reportFile))
	if errors.Is(err, fs.ErrNotExist) {
		return Report{}, nil
	}
	if err != nil {
		return Report{}, err
	}
	var r Report
	if err := json.Unmarshal(body, &r); err != nil {
		return Report{}, fmt.Errorf("read %s: %w", filepath.Join(dir, reportFile), err)
	}
	if r.BPFRoot != bpfRoot {
		return Report{}, nil
	}
	return r, nil
}
