package monitoring_test

import (
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/headgate/headgate/tests/testenv"
)

// emptyWhereAllIsWell are panels of which no row is good news.
var emptyWhereAllIsWell = []string{"Programs that are not attached", "Backends that are avoided", "Response time"}

// The node is in a zone, as the endpoint of zoned is.
const (
	nodeA = "apiVersion: v1\nkind: Node\nmetadata: {name: node-a, labels: {topology.kubernetes.io/zone: zone-a}}\n"
	zoned = "{addresses: [10.244.0.1], zone: zone-a}"
)

// A Service without endpoints refuses connections.
const refusing = `apiVersion: v1
kind: Service
metadata: {name: refusing}
spec: {clusterIP: 10.96.0.2, ports: [{name: http, port: 80}]}
`

// Nobody listens where its endpoint is.
const failing = `apiVersion: v1
kind: Service
metadata: {name: failing}
spec: {clusterIP: 10.96.0.3, ports: [{name: http, port: 80}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: failing-1, labels: {kubernetes.io/service-name: failing}}
addressType: IPv4
ports: [{name: http, port: 8080}]
endpoints: [{addresses: [10.244.0.2]}]
`

// The dashboards themselves have not been drawn: Debian has no Grafana, and of the packages of npm and
// Go that are named for it some are parts of its pages, none is a server that may be used here.
func TestPrometheusAnswersEveryQueryOfTheDashboards(t *testing.T) {
	beside(t)
	serve(t, "10.244.0.1")
	testenv.AddAddress(t, "10.244.0.2")
	client := testenv.Outside(t, "out0")
	a, metrics := newAgent(t, "--metrics-per-backend", "--devices", "out0")
	a.Cgroup = below(t, a.Cgroup, "node") // without the client outside
	for name, text := range map[string]string{"node.yaml": nodeA, "web.yaml": webOf(zoned), "refusing.yaml": refusing, "failing.yaml": failing} {
		a.Write(name, text)
	}
	a.Start()
	p := startPrometheus(t, metrics)
	if err := client.Do(func() error { return visit("203.0.113.1:80") }); err != nil {
		t.Fatal(err)
	}
	join(t, a.Cgroup)
	for i := range 30 {
		if err := visit("10.96.0.1:80"); err != nil {
			t.Fatal(err)
		}
		for service, address := range map[string]string{"without endpoints": "10.96.0.2:80", "where nobody listens": "10.96.0.3:80"} {
			if visit(address) == nil {
				t.Fatalf("a Service %s takes connections", service)
			}
		}
		if i%10 == 0 {
			a.Write("web.yaml", webOf(zoned)) // a change, so that there is a duration
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

// visit opens a connection, says something, hears it back and closes.
func visit(to string) error {
	c, err := net.DialTimeout("tcp", to, patience)
	if err != nil {
		return err
	}
	defer c.Close()
	said := []byte("hello")
	if _, err := c.Write(said); err != nil {
		return err
	}
	_, err = io.ReadFull(c, said)
	return err
}

// join moves this process into a cgroup until the test ends.
func join(t *testing.T, cgroup string) {
	t.Helper()
	move := func(to string) {
		if err := os.WriteFile(filepath.Join(to, "cgroup.procs"), []byte(strconv.Itoa(os.Getpid())), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	move(cgroup)
	t.Cleanup(func() { move(filepath.Dir(cgroup)) })
}
