package manifest

import (
	"strings"
	"testing"
)

// Each case saves something good beside a good neighbour, then something bad,
// then mends it. A second run starts with the bad version.
func TestBadInputIsSaidAndWhatWasGoodStays(t *testing.T) {
	web, slice := serviceYAML("web", 80), sliceYAML("web-1", "web", "10.244.1.1")
	replace := func(text, old, new string) string { return strings.Replace(text, old, new, 1) }
	for _, tc := range []struct {
		name string
		bad  string
		want string
		// at a start with the bad version:
		opaque bool
		frozen bool
		slice  bool // is what is frozen
	}{
		{name: "a broken YAML document", opaque: true, frozen: false,
			bad:  docs(slice, replace(web, "kind: Service", "kind: [Service")),
			want: "dir/a.yaml:13: document 2: cannot be read: did not find expected ',' or ']'; correct the syntax"},
		{name: "a separator with something behind it", opaque: true,
			bad:  slice + "---web\n" + web,
			want: `dir/a.yaml:11: document 1: cannot be read: invalid Yaml document separator: web; correct the syntax`},
		{name: "broken JSON", opaque: true,
			bad:  `{"apiVersion": "v1", "kind": "Service",` + "\n" + `"metadata": ]` + "\n",
			want: "dir/a.yaml:1: document 1: cannot be read: did not find expected node content; correct the syntax"},
		{name: "a document that is no object", opaque: true, bad: docs(slice, "hello\n"),
			want: `dir/a.yaml:12: document 2: is not an object; write apiVersion, kind, metadata and so on`},
		{name: "an object without a kind", opaque: true, bad: docs(slice, replace(web, "kind: Service\n", "")),
			want: "dir/a.yaml:12: document 2: kind: is missing; write one, such as Service"},
		{name: "a Service without a name", opaque: true, bad: docs(slice, replace(web, "name: web", "")),
			want: "dir/a.yaml:12: document 2: metadata.name: is missing, so the Service cannot be told from others; give it a name"},
		{name: "a list without items", opaque: true, bad: docs(slice, "apiVersion: v1\nkind: ServiceList\nItems: []\n"),
			want: "dir/a.yaml:12: document 2: items: is missing; write a list, [] where it has no items"},
		{name: "a list whose items are none", opaque: true, bad: docs(slice, "apiVersion: v1\nkind: List\nitems: {kind: Service}\n"),
			want: "dir/a.yaml:12: document 2: items: is not a list; write a list, [] where it has no items"},
		{name: "a misspelt kind", frozen: true, bad: docs(slice, replace(web, "Service", "Servise")),
			want: `dir/a.yaml:12: Service default/web: kind "Servise": is not a known kind; write "Service"`},
		{name: "an unknown version", frozen: true, bad: docs(slice, replace(web, "v1", "v2")),
			want: `dir/a.yaml:12: Service default/web: apiVersion "v2": is not a known version of Service; write "v1"`},
		{name: "a Service without ports", frozen: true, bad: docs(slice, web[:strings.Index(web, "  ports")]),
			want: "dir/a.yaml:12: Service default/web: spec.ports: is empty: a Service needs at least one port; add a port"},
		{name: "a port out of range", frozen: true, bad: docs(slice, serviceYAML("web", 65536)),
			want: `dir/a.yaml:12: Service default/web: spec.ports[0].port "65536": is out of range; give it a port from 1 to 65535`},
		{name: "a port that is no number", frozen: true, bad: docs(slice, replace(web, "80\n", "abc\n")),
			want: `dir/a.yaml:12: Service default/web: spec.ports[0].port "abc": is not a whole number in range; write a whole number in range`},
		{name: "a port that no number type takes", frozen: true, bad: docs(slice, replace(web, "80\n", "99999999999\n")),
			want: `dir/a.yaml:12: Service default/web: spec.ports[0].port "99999999999": is not a whole number in range; write a whole number in range`},
		{name: "an endpoint that is not an IP", frozen: true, slice: true, bad: docs(replace(slice, "10.244.1.1", "pod-1"), web),
			want: `dir/a.yaml:1: EndpointSlice default/web-1: endpoints[0].addresses[0] "pod-1": is not an IP address; write an IPv4 or IPv6 address, such as "192.0.2.1" or "2001:db8::1"`},
		{name: "a loopback endpoint", frozen: true, slice: true, bad: docs(replace(slice, "10.244.1.1", "127.0.0.1"), web),
			want: `dir/a.yaml:1: EndpointSlice default/web-1: endpoints[0].addresses[0] "127.0.0.1": is a loopback address; write a unicast address that other nodes can reach`},
		{name: "a link-local endpoint", frozen: true, slice: true, bad: docs(replace(slice, "10.244.1.1", "169.254.1.1"), web),
			want: `dir/a.yaml:1: EndpointSlice default/web-1: endpoints[0].addresses[0] "169.254.1.1": is a link-local address; write a unicast address that other nodes can reach`},
		{name: "a slice with a field of the wrong type", frozen: true, slice: true, bad: docs(replace(slice, "port: 8080", "port: [8080]"), web),
			want: `dir/a.yaml:1: EndpointSlice default/web-1: ports[0].port: is not a whole number in range; write a whole number in range`},
		{name: "a slice with a list for labels", opaque: true, bad: docs(replace(slice, "{kubernetes.io/service-name: web}", "[web]"), web),
			want: `dir/a.yaml:1: EndpointSlice default/web-1: metadata.labels: is not a map of fields; write a map of fields`},
		{name: "a slice whose Service is a number", opaque: true, bad: docs(replace(slice, "service-name: web", "service-name: 5"), web),
			want: `dir/a.yaml:1: EndpointSlice default/web-1: metadata.labels.kubernetes.io/service-name "5": is not a string; write a string, in quotes: YAML takes on, off, yes, no, true, false and numbers for other than text`},
		{name: "a slice of an old version", frozen: true, slice: true, bad: docs(replace(slice, "io/v1", "io/v1beta1"), web),
			want: `dir/a.yaml:1: EndpointSlice default/web-1: apiVersion "discovery.k8s.io/v1beta1": is not a known version of EndpointSlice; write "discovery.k8s.io/v1"`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := newFolder()
			f.save("a.yaml", docs(slice, web))
			f.save("b.yaml", serviceYAML("api", 90))
			f.save("a.yaml", tc.bad)
			f.wantSaid(t, tc.want)
			f.wantFrozen(t)
			if f.partial != tc.opaque {
				t.Errorf("partial is %v", f.partial)
			}
			f.save("b.yaml", serviceYAML("api", 91))
			if f.port("api") != 91 {
				t.Error("the neighbour has stopped working")
			}
			if f.port("web") != 80 || f.endpoints("web-1") != "10.244.1.1" {
				t.Errorf("what was good is gone: %v, %v", f.services, f.slices)
			}
			f.save("a.yaml", docs(sliceYAML("web-1", "web", "10.244.1.2"), serviceYAML("web", 81)))
			if f.port("web") != 81 || f.endpoints("web-1") != "10.244.1.2" || len(f.problems) > 0 || f.partial {
				t.Errorf("mended, but: %v, %v, %v", f.services, f.slices, f.said())
			}
		})
		t.Run(tc.name+", from the start", func(t *testing.T) {
			f := newFolder()
			f.save("a.yaml", tc.bad)
			f.wantSaid(t, tc.want)
			if f.partial != tc.opaque {
				t.Errorf("partial is %v", f.partial)
			}
			switch {
			case tc.slice:
				f.wantFrozen(t, "endpoints of web")
			case tc.frozen:
				f.wantFrozen(t, "web")
			default:
				f.wantFrozen(t)
			}
			f.remove("a.yaml")
			f.wantSaid(t)
			f.wantFrozen(t)
		})
	}
}

func TestTypeErrorsNameTheFieldAsFarAsTheyCan(t *testing.T) {
	head := `{"apiVersion":"v1","kind":"Service","metadata":{"name":"web"},`
	for _, tc := range []struct{ name, text, want string }{
		{"a number for a string", head + `"spec":{"clusterIP":10,"ports":[{"port":80}]}}`,
			`spec.clusterIP "10": is not a string; write a string, in quotes: YAML takes on, off, yes, no, true, false and numbers for other than text`},
		{"a string for a list", head + `"spec":{"ports":"80"}}`, `spec.ports "80": is not a list; write a list`},
		{"a list for an object, after another list", head + `"spec":{"externalIPs":["192.0.2.1"],"ports":[{"port":1},[]]}}`,
			`spec.ports[1]: is not a map of fields; write a map of fields`},
		{"a string for a truth", head + `"spec":{"publishNotReadyAddresses":"maybe"}}`,
			`spec.publishNotReadyAddresses "maybe": is not true or false; write true or false`},
		{"a type that decodes itself", head + `"spec":{"ports":[{"port":1,"targetPort":true}]}}`,
			`spec.ports.targetPort: is not a whole number in range; write a whole number in range`},
		{"a label that is a number", `{"apiVersion":"v1","kind":"Service","metadata":{"name":"web","labels":{"a":"b","n":1}}}`,
			`metadata.labels.n "1": is not a string; write a string, in quotes: YAML takes on, off, yes, no, true, false and numbers for other than text`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := newFolder()
			f.save("a.json", tc.text)
			f.wantSaid(t, "dir/a.json:1: Service default/web: "+tc.want)
			f.wantFrozen(t, "web")
		})
	}
}

// A name that YAML takes for something else is no name, and its object nobody knows.
func TestNamesThatAreNoTextAreSaid(t *testing.T) {
	for field, value := range map[string]string{"name": "on", "namespace": "1"} {
		f := newFolder()
		f.save("a.yaml", "apiVersion: v1\nkind: Service\nmetadata: {name: web, "+field+": "+value+"}\nspec: {clusterIP: 10.96.0.1, ports: [{port: 80}]}\n")
		if field == "name" {
			f.save("a.yaml", "apiVersion: v1\nkind: Service\nmetadata: {name: on}\nspec: {clusterIP: 10.96.0.1, ports: [{port: 80}]}\n")
			value = "true"
		}
		f.wantSaid(t, `dir/a.yaml:1: document 1: metadata.`+field+` "`+value+`": is not a string; write a string, in quotes: YAML takes on, off, yes, no, true, false and numbers for other than text`)
		if !f.partial || len(f.services) > 0 {
			t.Errorf("%s: partial %v, Services %v", field, f.partial, f.services)
		}
	}
}

func TestABadItemOfAListLeavesTheOthersAlone(t *testing.T) {
	const list = "apiVersion: v1\nkind: ServiceList\nitems:\n"
	item := func(name, port string) string {
		return "- metadata: {name: " + name + "}\n  spec: {clusterIP: 10.96.0.10, ports: [{port: " + port + "}]}\n"
	}
	f := newFolder()
	f.save("a.yaml", list+item("web", "0")+item("api", "80")+item("", "80")+"- {kind: List}\n")
	f.wantSaid(t,
		`dir/a.yaml:1: Service default/web: spec.ports[0].port "0": is out of range; give it a port from 1 to 65535`,
		`dir/a.yaml:1: items[2] of the ServiceList: metadata.name: is missing, so the Service cannot be told from others; give it a name`,
		`dir/a.yaml:1: items[3] of the ServiceList: kind "List": is a list within a list; put its items into the outer one`)
	f.wantFrozen(t, "web")
	if f.port("api") != 80 || !f.partial {
		t.Errorf("got %v, partial %v", f.services, f.partial)
	}
}
