package agent

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"strings"

	"github.com/headgate/headgate/pkg/lb"
)

// serveBackends answers what is said of all backends: a line each, with tabs, since there may be
// very many.
func (a *statusServer) serveBackends(w http.ResponseWriter, r *http.Request) {
	all, err := a.inbox.Describe(r.Context())
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
		for i, field := range []string{d.Backend.String(), d.Pod.Namespace, d.Pod.Name, d.Node, d.Zone, string(d.State)} {
			if i > 0 {
				_, _ = out.WriteString(tab) // Flush says what fails
			}
			_, _ = out.WriteString(lb.Printable(field))
		}
		_ = out.WriteByte('\n')
	}
	return out.Flush()
}

// AskBackends asks the agent with a state directory what is said of all backends. Of what it does
// not know nothing is there.
func AskBackends(ctx context.Context, stateDir string) (lb.Descriptions, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	body, err := hear(ctx, stateDir, http.MethodGet, "/backends")
	if err != nil {
		return nil, err
	}
	all, err := readDescriptions(string(body))
	if err != nil {
		return nil, errOtherVersion(stateDir)
	}
	return all, nil
}

// readDescriptions reads what writeDescriptions writes.
func readDescriptions(text string) (lb.Descriptions, error) {
	all := make(lb.Descriptions, 0, strings.Count(text, "\n"))
	for line := range strings.Lines(text) {
		var fields [6]string
		rest := strings.TrimSuffix(line, "\n")
		for i := range fields {
			fields[i], rest, _ = strings.Cut(rest, tab)
		}
		at, err := lb.ParseAddrPort(fields[0])
		if err != nil {
			return nil, err
		}
		all = append(all, lb.Description{
			Backend: at, Pod: lb.PodName{Namespace: fields[1], Name: fields[2]}, Node: fields[3], Zone: fields[4], State: lb.BackendState(fields[5]),
		})
	}
	return all, nil
}
