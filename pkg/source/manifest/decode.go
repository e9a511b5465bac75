package manifest

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	sigsjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/source/convert"
)

// head is what tells an object.
type head struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Name      string            `json:"name"`
		Namespace string            `json:"namespace"`
		Labels    map[string]string `json:"labels"`
	} `json:"metadata"`
	Items []json.RawMessage `json:"items"`
}

// decoder turns documents into objects. It keeps nothing of them.
type decoder struct {
	node string // the only Node that matters
	opts convert.Options
}

// decode returns what a document says.
func (dec decoder) decode(c chunk) *document {
	d := &document{}
	if c.err != nil {
		d.broken(c.err)
		return d
	}
	raw := c.text
	if !c.json {
		raw = d.toJSON(c.text)
	}
	if raw = bytes.TrimSpace(raw); len(raw) == 0 || bytes.Equal(raw, []byte("null")) {
		return d
	}
	dec.object(d, raw, within{})
	return d
}

// broken notes that the document cannot be read at all.
func (d *document) broken(err error) {
	line, text := lineOf(err)
	d.opaque = true
	d.findings = append(d.findings, finding{line: line, Problem: lb.Problem{
		Reason: "cannot be read: " + text, Remedy: "correct the syntax",
	}})
}

// toJSON reads YAML. A key that is there twice is reported, and the last one
// counts, as everywhere in Kubernetes.
func (d *document) toJSON(text []byte) []byte {
	raw, strict := yaml.YAMLToJSONStrict(text)
	if strict == nil {
		return raw
	}
	raw, err := yaml.YAMLToJSON(text)
	if err != nil {
		d.broken(err)
		return nil
	}
	line, reason := lineOf(strict)
	d.findings = append(d.findings, finding{line: line, Problem: lb.Problem{
		Reason: reason + ", the last one counts", Remedy: "remove one of them",
	}})
	return raw
}

// within is the list that an object is in, if any.
type within struct {
	list  string // kind of the list, "" where the object stands alone
	item  string // kind of its items where they do not say it themselves
	index int
}

// String returns how to find an object that has no name of its own.
func (w within) String() string {
	if w.list == "" {
		return "" // the number of the document says it
	}
	return fmt.Sprintf("items[%d] of the %s", w.index, w.list)
}

// object decodes one object, or each of a list.
func (dec decoder) object(d *document, raw []byte, w within) {
	if raw[0] != '{' {
		d.stranger(w, finding{Problem: lb.Problem{Reason: "is not an object",
			Value: string(raw), Remedy: "write apiVersion, kind, metadata and so on"}})
		return
	}
	var h head
	// What does not fit is reported when the object itself is decoded.
	_ = sigsjson.UnmarshalCaseSensitivePreserveInts(raw, &h)
	if h.Kind == "" && w.item != "" {
		h.Kind, h.APIVersion = w.item, versionOf(w.item)
	}
	item, isList := listOf(h.APIVersion, h.Kind)
	switch {
	case h.Kind == "":
		d.stranger(w, finding{Problem: lb.Problem{Field: "kind",
			Reason: "is missing", Remedy: "write one, such as Service"}})
	case isList && w.list != "":
		// Unpacking these would cost the square of their depth.
		d.stranger(w, finding{Problem: lb.Problem{Field: "kind", Value: h.Kind,
			Reason: "is a list within a list", Remedy: "put its items into the outer one"}})
	case isList:
		dec.list(d, h, item)
	default:
		dec.single(d, raw, h, w)
	}
}

func (dec decoder) list(d *document, h head, item string) {
	for i, raw := range h.Items {
		if raw = bytes.TrimSpace(raw); len(raw) > 0 {
			dec.object(d, raw, within{list: h.Kind, item: item, index: i})
		}
	}
}

// stranger notes that something may be an object, but not which.
func (d *document) stranger(w within, f finding) {
	f.Object = w.String()
	d.opaque = true
	d.findings = append(d.findings, f)
}

// single decodes an object that is not a list.
func (dec decoder) single(d *document, raw []byte, h head, w within) {
	kind, slip := meant(h.APIVersion, h.Kind)
	name, namespace := h.Metadata.Name, cmp.Or(h.Metadata.Namespace, metav1.NamespaceDefault)
	if kind == "" {
		d.reject(key{h.Kind, namespace, name}, *slip)
		return
	}
	if name == "" {
		d.stranger(w, finding{Problem: lb.Problem{Field: "metadata.name",
			Reason: "is missing, so nobody can tell which " + kind + " it is", Remedy: "give it a name"}})
		return
	}
	o := object{key: key{kind, namespace, name}, bad: true}
	switch kind {
	case serviceKind:
		o.holds = lb.ServiceName{Namespace: namespace, Name: name}
	case sliceKind:
		o.holds = lb.ServiceName{Namespace: namespace, Name: h.Metadata.Labels[discoveryv1.LabelServiceName]}
	case nodeKind:
		if name != dec.node {
			return
		}
		o.key.namespace = ""
	}
	if slip != nil {
		d.reject(o.key, *slip)
	} else {
		dec.convert(d, raw, &o)
	}
	d.objects = append(d.objects, o)
}

// lineOf takes the line out of an error of the YAML decoder, from 0, and
// returns the rest of its text.
func lineOf(err error) (line int, text string) {
	text = strings.TrimPrefix(err.Error(), "yaml: ")
	text = strings.TrimPrefix(text, "unmarshal errors:\n")
	text, _, _ = strings.Cut(text, "\n")
	if m := yamlLine.FindStringSubmatch(text); m != nil {
		line, _ = strconv.Atoi(m[1])
		text = m[2]
	}
	return max(line-1, 0), text
}

var yamlLine = regexp.MustCompile(`^\s*line (\d+): (.*)$`)
