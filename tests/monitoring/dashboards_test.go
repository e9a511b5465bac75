package monitoring_test

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// emptyWhereAllIsWell are panels of which no row is good news.
var emptyWhereAllIsWell = []string{"Programs that are not attached", "Backends that are avoided", "Response time"}

// A Service without endpoints refuses connections.
const refusing = `apiVersion: v1
kind: Service
metadata: {name: refusing}
spec: {clusterIP: 10.96.0.2, ports: [{name: http, port: 80}]}
`

func TestPrometheusAnswersEveryQueryOfTheDashboards(t *testing.T) {
	beside(t)
	serve(t, "10.244.0.1")
	a, metrics := newAgent(t, "--metrics-per-backend")
	a.Write("refusing.yaml", refusing)
	a.Start()
	p := startPrometheus(t, metrics)
	for i := range 30 {
		if err := connect(t, "10.96.0.1:80"); err != nil {
			t.Fatal(err)
		}
		if connect(t, "10.96.0.2:80") == nil {
			t.Fatal("a Service without endpoints takes connections")
		}
		if i%10 == 0 {
			a.Write("web.yaml", webOf(one)) // a change, so that there is a duration
		}
		time.Sleep(100 * time.Millisecond)
	}
	for file, d := range mustDashboards(t) {
		for _, v := range d.Templating.List {
			if v.Name != "datasource" && len(p.values(v)) == 0 {
				t.Errorf("%s: nothing can be chosen for %s", file, v.Name)
			}
		}
		for _, panel := range d.Panels {
			for _, q := range panel.Targets {
				answered := func() bool { return len(p.query(inGrafana.Replace(q.Expr))) > 0 } // fails where it is none
				if !answered() && !slices.Contains(emptyWhereAllIsWell, panel.Title) {
					p.eventually(fmt.Sprintf("%s, panel %q: an answer to %s", file, panel.Title, q.Expr), answered) // a scrape may have been late
				}
			}
		}
	}
}
