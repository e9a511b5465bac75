package hostile_test

import (
	"fmt"
	"strings"
	"testing"
	"text/tabwriter"
)

// row is what an attacker got.
type row struct {
	attack string
	harm
	ejected  int // looks at which healthy backends were ejected for all
	requests int // sent in the name of the node
	memory   int // that the agent has had at most, in MiB
	gains    []string
}

// maxMemory is what an agent with a handful of Services may have, in MiB.
const maxMemory = 400

// gain notes something else that the attacker got.
func (r *row) gain(format string, args ...any) {
	r.gains = append(r.gains, fmt.Sprintf(format, args...))
}

// won says what the attacker got, nothing if nothing.
func (r *row) won() []string {
	won := r.gains
	for _, of := range []struct {
		got  bool
		what string
		n    int
	}{
		{r.moved > 0, "per cent of traffic moved", int(100 * r.moved)},
		{r.failed > 0, "connections failed", r.failed},
		{r.stolen > 0, "connections stolen", r.stolen},
		{r.ejected > 0, "looks at healthy backends that are ejected", r.ejected},
		{r.requests > 0, "requests in the name of the node", r.requests},
		{r.memory > maxMemory, "MiB of the agent's memory", r.memory},
		{r.answered == 0, "answers to victims", 0},
	} {
		if of.got {
			won = append(won, fmt.Sprintf("%d %s", of.n, of.what))
		}
	}
	return won
}

// table is one line for each attack.
func table(rows []*row) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "attack\tanswered\tmoved\tfailed\tstolen\tejected\trequests\tMiB\telse")
	for _, r := range rows {
		fmt.Fprintf(w, "%s\t%d\t%.0f %%\t%d\t%d\t%d\t%d\t%d\t%s\n", r.attack, r.answered, 100*r.moved, r.failed, r.stolen, r.ejected, r.requests, r.memory,
			strings.Join(r.gains, "; "))
	}
	w.Flush()
	return b.String()
}

// judge fails the test of an attack that got something.
func (r *row) judge(t *testing.T) {
	t.Helper()
	if won := r.won(); len(won) > 0 {
		t.Errorf("the attacker got: %s\n%s", strings.Join(won, "; "), strings.Join(r.examples[:min(5, len(r.examples))], "\n"))
	}
}
