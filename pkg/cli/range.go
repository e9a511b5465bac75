package cli

import (
	"cmp"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/pkg/plan"
)

// sourceRange is a prefix from which a Service's load-balancer IPs may be used, as it is
// shown.
type sourceRange struct {
	prefix  plan.SourceRange
	service plan.Service
	Range   string `json:"range"`
	Service string `json:"service"`
}

func (r sourceRange) names() []string {
	return []string{fmt.Sprintf("%s-%s", r.Service, r.Range), r.Range}
}

func (r sourceRange) owners() []plan.Service { return []plan.Service{r.service} }

var ranges = noun[sourceRange]{
	name: "range", kind: "Range", short: "source ranges: who may use the load-balancer IPs of a Service",
	words: "{PREFIX | [NAMESPACE/]SERVICE[:PORT]}",
	columns: []column[sourceRange]{
		{title: "SERVICE", of: func(r sourceRange) any { return r.Service }},
		{title: "RANGE", of: func(r sourceRange) any { return r.Range }},
	},
	read: readRanges, compare: compareRanges, namespaced: true,
}

func newRange(e *env) *cobra.Command { return ranges.command(e) }

func readRanges(s *sight, do func(*sourceRange) error) error {
	all, err := s.SourceRanges()
	if err != nil {
		return err
	}
	for r := range all {
		service, err := s.Service(r.Service)
		if err == nil {
			err = do(&sourceRange{prefix: r, service: service, Range: r.Prefix.String(), Service: service.String()})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func compareRanges(a, b sourceRange) int {
	return cmp.Or(cmp.Compare(a.Service, b.Service), a.prefix.Prefix.Compare(b.prefix.Prefix))
}
