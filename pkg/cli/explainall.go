package cli

import (
	"fmt"
	"slices"
	"strings"
)

// storiesOf returns the rows of several addresses: a line for each with its outcome, then the stories that differ in more than the
// address.
func storiesOf(all []explanation) (rows [][]string) {
	if len(all) > 1 {
		for i := range all {
			rows = append(rows, []string{all[i].Address, all[i].Kind, all[i].verdict()})
		}
	}
	var told []string
	for i := range all {
		story := all[i].story()
		if slices.Contains(told, story) {
			continue
		}
		if told = append(told, story); len(rows) > 0 {
			rows = append(rows, []string{""})
		}
		rows = append(rows, all[i].rows()...)
	}
	return rows
}

// verdict is the outcome in short.
func (x *explanation) verdict() string {
	if x.Refused != "" {
		return "refused: " + x.Refused
	}
	return x.Outcome
}

// story is what two addresses have in common that have the same story: neither the address nor what is by chance or of the moment.
func (x explanation) story() string {
	x.Frontend, x.Kind, x.Address = x.Service, "", ""
	if x.To != "" {
		x.Outcome, x.Remedy = "", "" // of the backend that was chosen
	}
	x.Backends = slices.Clone(x.Backends)
	for i := range x.Backends {
		b := &x.Backends[i]
		b.Now, b.RetryDue, b.Tried = nil, false, ""
		b.Health, _, _ = strings.Cut(b.Health, " for ")
	}
	return fmt.Sprint(x.rows())
}
