package agent

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net/http"

	"github.com/headgate/headgate/pkg/lb"
)

// asked is the parameter that names backends, as lb.SelectionOf reads it.
const asked = "of"

// serveBackends answers what is said of backends, of all where none is named: a line each, with tabs, since
// there may be very many.
func (a *statusServer) serveBackends(w http.ResponseWriter, r *http.Request) {
	var selected *lb.Selection
	if words := r.URL.Query()[asked]; len(words) > 0 {
		selected = lb.SelectionOf(words)
	}
	all, err := a.inbox.Describe(r.Context(), selected)
	if err != nil {
		http.Error(w, err.Error(), http.StatusConflict)
		return
	}
	_ = writeDescriptions(w, all) // fails where nobody reads it
}

// tab stands between the fields of a description, and in none of them.
const tab = "\t"

func writeDescriptions(to io.Writer, all lb.Descriptions) error {
	out := bufio.NewWriter(to)
	for _, d := range all {
		for i, field := range []string{d.Backend.String(), d.Pod.Namespace, d.Pod.Name, d.Node, d.Zone, string(d.State), d.Service.Namespace, d.Service.Name, d.Slice, d.Port} {
			if i > 0 {
				_, _ = out.WriteString(tab) // Flush says what fails
			}
			_, _ = out.WriteString(lb.Printable(field))
		}
		_ = out.WriteByte('\n')
	}
	return out.Flush()
}

// AskBackends asks the agent what is said of backends: of all, or where there are words of
// those that lb.SelectionOf makes of them; an earlier agent tells of all. Of what it does not know nothing is
// there; it is nil with an error alone.
func (p *Place) AskBackends(ctx context.Context, words ...string) (*lb.Told, error) {
	what := "/backends?" + parameters(asked, words)
	var all *lb.Told
	err := p.listen(ctx, request{http.MethodGet, what, askTimeout, ""}, func(from io.Reader) (err error) {
		all, err = readDescriptions(from)
		return err
	})
	return all, err
}

// readDescriptions reads what writeDescriptions writes. There may be very many, on few nodes in few zones, so that equal
// texts are one in memory.
func readDescriptions(from io.Reader) (*lb.Told, error) {
	all := &lb.Told{} // of an agent without backends, not nil: it says that there are none
	texts := map[string]string{}
	one := func(text []byte) string {
		if _, ok := texts[string(text)]; !ok {
			texts[string(text)] = string(text)
		}
		return texts[string(text)]
	}
	lines := bufio.NewScanner(from)
	for lines.Scan() {
		var fields [10][]byte
		rest := lines.Bytes()
		for i := range fields {
			fields[i], rest, _ = bytes.Cut(rest, []byte(tab))
		}
		at, err := lb.ParseAddrPort(string(fields[0]))
		if err != nil {
			return nil, err
		}
		all.Add(lb.Description{
			Backend: at, Service: lb.ServiceName{Namespace: one(fields[6]), Name: one(fields[7])}, Pod: lb.PodName{Namespace: one(fields[1]), Name: string(fields[2])},
			Node: one(fields[3]), Zone: one(fields[4]), State: lb.BackendState(one(fields[5])), Slice: one(fields[8]), Port: one(fields[9]),
		})
	}
	return all, lines.Err()
}
