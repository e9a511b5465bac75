package scenario

import (
	"errors"
	"fmt"
	"slices"
	"strconv"

	"go.yaml.in/yaml/v3"

	"github.com/headgate/headgate/pkg/traffic/contender"
	"github.com/headgate/headgate/pkg/traffic/report"
)

// Families of addresses.
const (
	IPv4 = "ipv4"
	IPv6 = "ipv6"
)

// Some is one value or a list of values.
type Some[T any] []T

// UnmarshalYAML implements yaml.Unmarshaler.
func (s *Some[T]) UnmarshalYAML(node *yaml.Node) error {
	if node.Kind == yaml.SequenceNode {
		return node.Decode((*[]T)(s))
	}
	*s = make(Some[T], 1)
	return node.Decode(&(*s)[0])
}

// Case is what is brought up of a contender, once.
type Case struct {
	Contender string
	Services  int
	Endpoints int
	Family    string
}

// String is the case in words.
func (c Case) String() string {
	text := fmt.Sprintf("%s with %d Services of %d endpoints", c.Contender, c.Services, c.Endpoints)
	if c.Family == IPv6 {
		text += ", IPv6"
	}
	return text
}

// cases are all that are measured, each combination of the lists in the file. What
// a contender is not to have, since it has too many Services, is left out.
func (s Scenario) cases() []Case {
	var all []Case
	for _, family := range s.Family {
		for _, endpoints := range s.Endpoints {
			for _, services := range s.Services {
				for _, name := range s.Contenders {
					if s.has(name, services) {
						all = append(all, Case{name, services, endpoints, family})
					}
				}
			}
		}
	}
	return all
}

// has says whether a contender is to be measured with so many Services.
func (s Scenario) has(contender string, services int) bool {
	most, limited := s.MostServices[contender]
	return !limited || services <= most
}

// labels tell runs of the case, and of a churn if there is any, apart from the
// others of the scenario.
func (s Scenario) labels(c Case, churn string) map[string]string {
	labels := map[string]string{report.ContenderLabel: c.Contender, report.ServicesLabel: strconv.Itoa(c.Services), "topology": s.Topology}
	if len(s.Endpoints) > 1 {
		labels[report.EndpointsLabel] = strconv.Itoa(c.Endpoints)
	}
	if len(s.Family) > 1 || c.Family != IPv4 {
		labels[report.FamilyLabel] = c.Family
	}
	if churn != "" {
		labels[report.ChurnLabel] = churn
	}
	return labels
}

// contender is what is brought up for a case.
func (s Scenario) contender(c Case) contender.Spec {
	spec := contender.Spec{
		Name: c.Contender, Topology: s.Topology, UDP: s.Load.Kind.OverUDP(), IPv6: c.Family == IPv6,
		Services: c.Services, Endpoints: c.Endpoints, Drill: s.Drill.takesServers(),
	}
	if hook, ok := s.Hooks[c.Contender]; ok {
		spec.Hook = &hook
	}
	return spec
}

// validateCases returns what is wrong with what is brought up.
func (s Scenario) validateCases() error {
	if len(s.Services) == 0 {
		return errors.New("services is empty: write numbers of Services, such as [1, 1000]")
	}
	if len(s.Endpoints) == 0 {
		return errors.New("endpoints is empty: write how many a Service has, such as 3 or [3, 100]")
	}
	for _, f := range s.Family {
		if f != IPv4 && f != IPv6 {
			return fmt.Errorf("family is %q: it is ipv4, ipv6 or [ipv4, ipv6]", f)
		}
	}
	for name := range s.MostServices {
		if !slices.Contains(s.Contenders, name) {
			return fmt.Errorf("most-services: contender %q is not among contenders", name)
		}
	}
	for _, list := range [][]string{s.Contenders, s.Family} {
		if repeated := repeatedOf(list); repeated != "" {
			return fmt.Errorf("%s is there twice: once is enough", repeated)
		}
	}
	for _, s := range []Scenario{s, s.Small()} {
		for _, c := range s.cases() {
			if err := s.contender(c).Validate(); err != nil {
				return err
			}
		}
	}
	return nil
}

// repeatedOf returns what a list has twice, "" if nothing.
func repeatedOf(list []string) string {
	for i, v := range list {
		if slices.Contains(list[:i], v) {
			return v
		}
	}
	return ""
}

// Without returns the scenario without a contender, and without what was to be said of
// it.
func (s Scenario) Without(name string) Scenario {
	s.Contenders = slices.DeleteFunc(slices.Clone(s.Contenders), func(p string) bool { return p == name })
	s.Aims = slices.DeleteFunc(slices.Clone(s.Aims), func(a Aim) bool { return a.Contender == name || a.Over == name })
	return s
}
