package contender

import (
	"bufio"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// event is a line of a watch.
type event struct {
	Type   string
	Object struct {
		Kind     string
		Metadata struct {
			Name, ResourceVersion string
			Annotations           map[string]string
		}
		Endpoints []struct {
			Conditions struct{ Ready, Terminating bool }
		}
	}
}

// serving is an API server with two Services in the process of the test.
func serving(t *testing.T) (*apiServer, []service, string) {
	t.Helper()
	services := newServices(topology(t, "pair"), Spec{Services: 2, Endpoints: 2})
	a := newAPIServer()
	a.nodes.items = [][]byte{nodeObject("node-a", topology(t, "pair").Machines[0].Addrs).text()}
	for _, s := range services {
		a.services.items = append(a.services.items, serviceObject(s, true).text())
		a.slices.items = append(a.slices.items, sliceObject(s, allReady(s), "node-a").text())
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	a.start(l)
	t.Cleanup(func() { _ = a.Close() })
	return a, services, "http://" + l.Addr().String()
}

func get(t *testing.T, url string) (int, io.Reader) {
	t.Helper()
	client := http.Client{Timeout: 10 * time.Second}
	answer, err := client.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = answer.Body.Close() })
	return answer.StatusCode, answer.Body
}

func TestAServiceProxyIsToldWhatThereIs(t *testing.T) {
	_, _, url := serving(t)
	for path, want := range map[string][]string{
		"/api/v1/services?labelSelector=x":                                      {`"kind":"ServiceList"`, `"resourceVersion":"1"`, `"clusterIP":"10.97.0.2"`, `"ingress":[{"ip":"10.96.0.2","ipMode":"VIP"}]`, `"type":"LoadBalancer"`},
		"/apis/discovery.k8s.io/v1/endpointslices?limit=500":                    {`"kind":"EndpointSliceList"`, `"kubernetes.io/service-name":"service-00001"`, `"addresses":["10.101.0.1"]`},
		"/api/v1/nodes?fieldSelector=metadata.name%3Dnode-a":                    {`"kind":"NodeList"`, `"name":"node-a"`, `"type":"InternalIP"`},
		"/api/v1/nodes/node-a":                                                  {`"kind":"Node"`},
		"/apis/networking.k8s.io/v1/servicecidrs?resourceVersion=0&watch=false": {`"items":[]`},
	} {
		status, body := get(t, url+path)
		text, err := io.ReadAll(body)
		if err != nil || status != http.StatusOK || !json.Valid(text) {
			t.Errorf("%s: %d, %v: %s", path, status, err, text)
		}
		for _, w := range want {
			if !strings.Contains(string(text), w) {
				t.Errorf("%s has no %s:\n%s", path, w, text)
			}
		}
	}
	if status, _ := get(t, url+"/api/v1/pods"); status != http.StatusNotFound {
		t.Errorf("pods are answered with %d, want that there are none", status)
	}
}

func TestWhoWatchesIsToldOfChanges(t *testing.T) {
	a, services, url := serving(t)
	p := &Contender{Spec: Spec{Topology: "pair"}, node: "node-a", api: a}
	_, listed := get(t, url+"/apis/discovery.k8s.io/v1/endpointslices?watch=true&resourceVersion=1")
	_, streamed := get(t, url+"/apis/discovery.k8s.io/v1/endpointslices?watch=true&sendInitialEvents=true")
	before := version{service: services[1], number: 1, members: allReady(services[1])}
	after := before.clone()
	after.members[0].is = terminating
	deleted := after.clone()
	deleted.deleted = true
	for _, step := range [][2]version{{before, after}, {after, deleted}, {deleted, after}} {
		if err := p.changeAPIServer(t.Context(), step[:1], step[1:]); err != nil {
			t.Fatal(err)
		}
	}
	_, late := get(t, url+"/apis/discovery.k8s.io/v1/endpointslices?watch=true&resourceVersion=3")
	changes := []string{"MODIFIED service-00001 2", "DELETED service-00001 3", "ADDED service-00001 4"}
	for name, tc := range map[string]struct {
		from io.Reader
		want []string
	}{
		"from the list on":       {listed, changes},
		"from the beginning on":  {streamed, append([]string{"ADDED service-00000 1", "ADDED service-00001 1", "BOOKMARK  1"}, changes...)},
		"from another change on": {late, changes[2:]},
	} {
		lines := bufio.NewScanner(tc.from)
		for _, want := range tc.want {
			var e event
			if !lines.Scan() || json.Unmarshal(lines.Bytes(), &e) != nil {
				t.Fatalf("%s: no event: %s", name, lines.Text())
			}
			if got := e.Type + " " + e.Object.Metadata.Name + " " + e.Object.Metadata.ResourceVersion; got != want || e.Object.Kind != "EndpointSlice" {
				t.Errorf("%s: event %s of a %s, want %s", name, got, e.Object.Kind, want)
			}
			if e.Type == "MODIFIED" && (e.Object.Endpoints[0].Conditions.Ready || !e.Object.Endpoints[0].Conditions.Terminating || !e.Object.Endpoints[1].Conditions.Ready) {
				t.Errorf("%s: endpoints are %+v, want the first to terminate", name, e.Object.Endpoints)
			}
			if e.Type == "BOOKMARK" && e.Object.Metadata.Annotations["k8s.io/initial-events-end"] != "true" {
				t.Errorf("%s: nobody says that these were all", name)
			}
		}
	}
	if len(a.services.events) != 2 {
		t.Errorf("%d events of Services, want those of the one that went and came", len(a.services.events))
	}
}
