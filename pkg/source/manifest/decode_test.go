package manifest

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/source/convert"
)

func TestFormsOfManifests(t *testing.T) {
	web := serviceYAML("web", 80)
	asJSON := func(name string) string {
		return `{"apiVersion": "v1", "kind": "Service", "metadata": {"name": "` + name + `"},
	"spec": {"clusterIP": "10.96.0.10", "ports": [{"port": 80}]}}`
	}
	item := func(head string) string {
		return "- " + head + "metadata: {name: web}\n  spec: {clusterIP: 10.96.0.10, ports: [{port: 80}]}\n"
	}
	for _, tc := range []struct{ name, text string }{
		{"one document", web},
		{"documents that are empty or comments", "# licence\n---\n---\n" + web + "---\n# the end\n---\nnull\n"},
		{"separators with comments and carriage returns", strings.ReplaceAll("--- # first\n"+web, "\n", "\r\n")},
		{"a byte order mark", "\ufeff" + web},
		{"JSON with tabs", asJSON("web")},
		{"flow style that only looks like JSON", "{apiVersion: v1, kind: Service, metadata: {name: web}, spec: {clusterIP: 10.96.0.10, ports: [{port: 80}]}}"},
		{"a List", "apiVersion: v1\nkind: List\nitems:\n" + item("apiVersion: v1\n  kind: Service\n  ")},
		{"a ServiceList whose items do not say their kind", "apiVersion: v1\nkind: ServiceList\nitems:\n" + item("")},
		{"the namespace written out", strings.Replace(web, "name: web", "name: web, namespace: default", 1)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := newFolder()
			f.save("a.yaml", tc.text)
			f.wantSaid(t)
			if f.port("web") != 80 || len(f.services) != 1 || f.partial {
				t.Errorf("got %v", f.services)
			}
		})
	}
	t.Run("JSON objects one after another", func(t *testing.T) {
		f := newFolder()
		f.save("a.json", asJSON("web")+"\n\n"+asJSON("api"))
		f.wantSaid(t)
		if f.port("web") != 80 || f.port("api") != 80 {
			t.Errorf("got %v", f.services)
		}
	})
}

func TestOnlyTheNodeOfThisNameMatters(t *testing.T) {
	f := newFolder()
	f.save("a.yaml", docs(nodeYAML, "apiVersion: v1\nkind: Node\nmetadata: {name: node-b, labels: 7}\n"))
	f.wantSaid(t)
	if f.node != (lb.Node{Name: "node-a", Zone: "zone-a"}) {
		t.Errorf("got %+v", f.node)
	}
	f.remove("a.yaml")
	if f.node != (lb.Node{Name: "node-a"}) {
		t.Errorf("after its removal: %+v", f.node)
	}
}

func TestSlicePortsWithoutANameBelongToServicePortsWithoutOne(t *testing.T) {
	f := newFolder()
	f.save("a.yaml", sliceYAML("web-1", "web", "10.244.1.1"))
	if diff := cmp.Diff([]lb.SlicePort{{Protocol: lb.TCP, Port: 8080}}, f.slices[sliceName("web-1")].Ports); diff != "" {
		t.Error(diff)
	}
}

func TestWhatHasNoEffectIsSaidButDoesNotReject(t *testing.T) {
	for _, tc := range []struct{ name, text, want string }{
		{"a field that does not exist", serviceYAML("web", 80) + "    nodeprot: 30080\n",
			`dir/a.yaml:1: Service default/web: spec.ports[0].nodeprot: is not a known field, and has no effect; correct its spelling or remove it`},
		{"a field that does not exist, below a comment", "# licence\n\n---\n# web\n" + serviceYAML("web", 80) + "    nodeprot: 30080\n",
			`dir/a.yaml:5: Service default/web: spec.ports[0].nodeprot: is not a known field, and has no effect; correct its spelling or remove it`},
		{"a key that is there twice in YAML", serviceYAML("web", 79) + "    port: 80\n",
			`dir/a.yaml:8: document 1: key "port" already set in map, the last one counts; remove one of them`},
		{"a key that is there twice in JSON", `{"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"},
			"spec": {"clusterIP": "10.96.0.10", "ports": [{"port": 79, "port": 80}]}}`,
			`dir/a.yaml:1: Service default/web: spec.ports[0].port: is there twice, the last one counts; remove one of them`},
		{"an object of another kind", docs(serviceYAML("web", 80), "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\n"),
			`dir/a.yaml:9: Deployment default/web: kind "Deployment": is not a known kind of apiVersion "apps/v1"; keep only Service (v1), EndpointSlice (discovery.k8s.io/v1), Node (v1), Pod (v1) here`},
		{"a kind of the same name elsewhere", docs(serviceYAML("web", 80), "apiVersion: serving.knative.dev/v1\nkind: Service\nmetadata: {name: fn}\n"),
			`dir/a.yaml:9: Service default/fn: kind "Service": is not a known kind of apiVersion "serving.knative.dev/v1"; keep only Service (v1), EndpointSlice (discovery.k8s.io/v1), Node (v1), Pod (v1) here`},
		{"a Service without an address", docs(serviceYAML("web", 80), "apiVersion: v1\nkind: Service\nmetadata: {name: api}\nspec: {ports: [{port: 1}]}\n"),
			`dir/a.yaml:9: Service default/api: spec.clusterIP: is missing, and files get none assigned: the Service has no effect; write an address, or None for a headless Service`},
		{"an object twice in a file", docs(serviceYAML("web", 80), serviceYAML("web", 81)),
			`dir/a.yaml:9: Service default/web: is in this file twice, the first one counts; remove one of them`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := newFolder()
			f.save("a.yaml", tc.text)
			f.wantSaid(t, tc.want)
			f.wantFrozen(t)
			if f.port("web") != 80 || f.partial {
				t.Errorf("got %v, partial %v", f.services, f.partial)
			}
		})
	}
}

func TestExamplesAreGood(t *testing.T) {
	f := newFolder()
	for _, name := range []string{"node.yaml", "web-endpoints.yaml", "web.yaml"} {
		text, err := os.ReadFile("../../../examples/" + name)
		mustDo(t, err)
		f.save(name, string(text))
	}
	f.wantSaid(t)
	web := f.services[serviceName("web")]
	if web == nil || len(web.ClusterIPs) != 2 || len(web.Ports) != 2 || len(f.slices) != 2 || f.node.Zone != "zone-a" {
		t.Errorf("got %v, %v, %v", web, f.slices, f.node)
	}
	if got, want := f.endpoints("web-ipv4"), "10.244.1.1 10.244.1.2 10.244.2.1"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// FuzzDecode feeds files of any content: none may panic, none may make
// anything of an object that is bad, and the same file means the same twice.
func FuzzDecode(f *testing.F) {
	for _, seed := range []string{
		"", "{", "[]", "null\n---\n", "--- x\n", "\x00", "a: &a [*a]", "{}{}", "{\"kind\":{}}",
		docs(serviceYAML("web", 80), sliceYAML("web-1", "web", "10.0.0.1"), nodeYAML),
		serviceYAML("web", -1), sliceYAML("web-1", "web", "::"),
		"apiVersion: v1\nkind: List\nitems: [1, {kind: List}, null]\n",
		"kind: Service\nmetadata: {name: 7, labels: {a: 1}}\nspec: {ports: [{port: x, targetPort: {}}]}\n",
		`{"apiVersion":"v1","kind":"Service","metadata":{"name":"a"},"spec":{"":{"":[]},"ports":[{"port":1e9}]}}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		dec := decoder{newKinds("node-a", convert.Options{})}
		one, two := dec.read(data, content{}), dec.read(data, content{})
		if diff := cmp.Diff(one.ids(), two.ids()); diff != "" {
			t.Error("twice the same file:", diff)
		}
		found := 0
		for _, d := range one.documents {
			for _, finding := range d.findings {
				if text := finding.Error(); text != lb.Printable(text) {
					t.Errorf("a problem would talk to the terminal: %q", text)
				}
			}
			if found += len(d.findings); found > lb.MostProblems {
				t.Errorf("%d problems are kept", found)
			}
			for _, o := range d.objects {
				if o.bad && o.value != nil {
					t.Errorf("%s is bad and has a value", o.ID)
				}
				if o.bad && len(d.findings)+d.more == 0 {
					t.Errorf("%s is bad and nobody says why", o.ID)
				}
			}
		}
	})
}
