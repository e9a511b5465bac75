// Package scenario reads what is to be measured from a file, runs it in
// interleaved rounds, and says what came short of the aims that the file states.
package scenario

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/headgate/headgate/pkg/traffic/contender"
	"github.com/headgate/headgate/pkg/traffic/load"
)

// Scenario is a file.
type Scenario struct {
	Name       string                    `yaml:"name"`
	Text       string                    `yaml:"text"`       // what is measured and why, a paragraph
	Topology   string                    `yaml:"topology"`   // node or pair
	Contenders []string                  `yaml:"contenders"` // see contender.Names, and the hooks
	Hooks      map[string]contender.Hook `yaml:"hooks"`      // other contenders by name
	// Services, Endpoints of each and Family are one or several: every
	// combination is measured by itself. A contender may have its limit of Services.
	Services     Some[int]      `yaml:"services"`
	Endpoints    Some[int]      `yaml:"endpoints"`
	Family       Some[string]   `yaml:"family"` // ipv4, unless it is said
	MostServices map[string]int `yaml:"most-services"`
	Ask          string         `yaml:"ask"` // all Services in turn at random, or one, the one in the middle
	Rounds       int            `yaml:"rounds"`
	Load         Load           `yaml:"load"`
	Events       []Event        `yaml:"events"`
	Churn        []float64      `yaml:"churn"` // changes of Services a second, each by itself
	Drill        *Drill         `yaml:"drill"`
	Aims         []Aim          `yaml:"aims"`
	Quick        Quick          `yaml:"quick"` // instead of the above, to see whether it works
}

// Load is what is sent: see load.Spec.
type Load struct {
	Kind        load.Kind     `yaml:"kind"`
	Download    bool          `yaml:"download"` // of bulk: from server to client
	Rate        float64       `yaml:"rate"`
	Arrivals    string        `yaml:"arrivals"` // constant or poisson
	Connections int           `yaml:"connections"`
	PerSocket   int           `yaml:"per-socket"`
	Request     int           `yaml:"request-bytes"`
	Response    int           `yaml:"response-bytes"`
	FIN         bool          `yaml:"fin"`
	Timeout     time.Duration `yaml:"timeout"`
	WarmUp      time.Duration `yaml:"warm-up"`
	Duration    time.Duration `yaml:"duration"`
}

// Event is a shell command in every run, which finds what a contender.Hook finds.
type Event struct {
	At      time.Duration `yaml:"at"` // after counting has begun
	Name    string        `yaml:"name"`
	Command string        `yaml:"command"`
}

// Quick is a small version.
type Quick struct {
	Services  Some[int]     `yaml:"services"`
	Endpoints Some[int]     `yaml:"endpoints"`
	Rounds    int           `yaml:"rounds"`
	Duration  time.Duration `yaml:"duration"`
	Churn     []float64     `yaml:"churn"`
}

// Aim is a bound of a metric of a contender: of its median, or of how many times as
// large that is as another contender's or as with another number of Services.
type Aim struct {
	Contender    string   `yaml:"contender"`
	Services     int      `yaml:"services"`  // 0: the most there are
	Endpoints    int      `yaml:"endpoints"` // the same
	Family       string   `yaml:"family"`    // "": the first
	Churn        *float64 `yaml:"churn"`     // absent: the most there is
	Metric       string   `yaml:"metric"`    // rate, p50, p99, failed …, and those of drills
	Over         string   `yaml:"over"`      // a contender
	OverServices int      `yaml:"over-services"`
	OverChurn    *float64 `yaml:"over-churn"`
	OverFewest   bool     `yaml:"over-fewest-endpoints"` // over the same with the fewest endpoints there are
	AtMost       float64  `yaml:"at-most"`               // ratio, or of times in ns
	AtLeast      float64  `yaml:"at-least"`              // the same from below, for rates
}

// ReadFile reads a scenario.
func ReadFile(path string) (Scenario, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return Scenario{}, fmt.Errorf("read scenario: %w", err)
	}
	s, err := parse(text)
	if err != nil {
		return s, fmt.Errorf("scenario %s: %w", path, err)
	}
	return s, nil
}

func parse(text []byte) (Scenario, error) {
	var s Scenario
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	decoder.KnownFields(true)
	if err := decoder.Decode(&s); errors.Is(err, io.EOF) {
		return s, errors.New("it is empty")
	} else if err != nil {
		return s, errors.New(strings.ReplaceAll(err.Error(), "\n", ""))
	}
	if s.Ask == "" {
		s.Ask = "all"
	}
	if len(s.Family) == 0 {
		s.Family = Some[string]{IPv4}
	}
	return s, s.validate()
}

// validate returns what is wrong, and what to do.
func (s Scenario) validate() error {
	switch {
	case s.Name == "":
		return errors.New("name is missing")
	case len(s.Contenders) == 0:
		return fmt.Errorf("contenders is empty: there are %s, and what hooks bring up", strings.Join(contender.Names(), ", "))
	case s.Rounds < 1 || s.Rounds > 1000:
		return fmt.Errorf("rounds is %d: it goes from 1 to 1000, and intervals need at least 3", s.Rounds)
	case s.Ask != "all" && s.Ask != "one":
		return fmt.Errorf("ask is %q: it is all or one", s.Ask)
	case s.Ask == "all" && s.Load.Kind.OverUDP() && slices.ContainsFunc(s.Services, func(n int) bool { return n > 1 }):
		return fmt.Errorf("ask is all: of %s write one, servers of many addresses answer over TCP only", s.Load.Kind)
	case s.Load.Download && s.Load.Kind != load.Bulk:
		return fmt.Errorf("load.download is of kind bulk, and this is %s", s.Load.Kind)
	case s.Load.Arrivals != "" && s.Load.Arrivals != "constant" && s.Load.Arrivals != "poisson":
		return fmt.Errorf("load.arrivals is %q: it is constant or poisson", s.Load.Arrivals)
	}
	if err := s.validateCases(); err != nil {
		return err
	}
	for _, a := range s.Aims {
		if err := s.validateAim(a); err != nil {
			return err
		}
	}
	return s.validateDrill()
}

// Small returns the quick version.
func (s Scenario) Small() Scenario {
	if len(s.Quick.Services) > 0 {
		s.Services = s.Quick.Services
	}
	if len(s.Quick.Endpoints) > 0 {
		s.Endpoints = s.Quick.Endpoints
	}
	if s.Quick.Rounds > 0 {
		s.Rounds = s.Quick.Rounds
	}
	if len(s.Quick.Churn) > 0 {
		s.Churn = s.Quick.Churn
	}
	if s.Quick.Duration > 0 {
		s.Load.Duration = s.Quick.Duration
		s.Load.WarmUp = min(s.Load.WarmUp, s.Quick.Duration/2)
	}
	return s
}

func (s Scenario) load() load.Spec {
	l := s.Load
	return load.Spec{
		Kind: l.Kind, Download: l.Download, Rate: l.Rate, Poisson: l.Arrivals == "poisson", Connections: l.Connections, PerSocket: l.PerSocket, Request: l.Request,
		Response: l.Response, FIN: l.FIN, Timeout: l.Timeout, WarmUp: l.WarmUp, Duration: l.Duration, Seed: 1,
	}
}
