package manifest

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	sigsjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/source/objects"
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
	Items json.RawMessage `json:"items"`
}

// decoder turns documents into objects. It keeps nothing of them.
type decoder struct{ kinds kinds }

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
	d.find(finding{line: line, Problem: lb.Problem{
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
	d.find(finding{line: line, Problem: lb.Problem{
		Reason: reason + ", the last one counts", Remedy: "remove one of them",
	}})
	return raw
}

// within is the list that an object is in, if any.
type within struct {
	list  string        // kind of the list, "" where the object stands alone
	item  *objects.Kind // of its items where they do not say it themselves
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
	if h.Kind == "" && w.item != nil {
		h.Kind, h.APIVersion = w.item.Name, w.item.Version.String()
	}
	item, isList := dec.kinds.listOf(h.APIVersion, h.Kind)
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

func (dec decoder) list(d *document, h head, item *objects.Kind) {
	var items []json.RawMessage
	if err := json.Unmarshal(h.Items, &items); err != nil {
		f := finding{Problem: lb.Problem{Field: "items", Reason: "is not a list", Remedy: "write a list, [] where it has no items"}}
		if len(h.Items) == 0 {
			f.Reason = "is missing"
		}
		d.stranger(within{}, f)
	}
	for i, raw := range items {
		if raw = bytes.TrimSpace(raw); len(raw) > 0 {
			dec.object(d, raw, within{list: h.Kind, item: item, index: i})
		}
	}
}

// stranger notes that something may be an object, but not which.
func (d *document) stranger(w within, f finding) {
	f.Object = w.String()
	d.opaque = true
	d.find(f)
}

// single decodes an object that is not a list.
func (dec decoder) single(d *document, raw []byte, h head, w within) {
	kind, slip := dec.kinds.meant(h.APIVersion, h.Kind)
	id := objects.ID{Kind: h.Kind, Key: objects.Key{Namespace: cmp.Or(h.Metadata.Namespace, metav1.NamespaceDefault), Name: h.Metadata.Name}}
	if kind == nil {
		d.reject(id, *slip)
		return
	}
	for _, field := range []string{"name", "namespace"} {
		if m, wrong := notText(raw, field); wrong {
			d.stranger(w, finding{Problem: lb.Problem{Field: m.field, Value: m.value, Reason: m.reason, Remedy: m.remedy}})
			return
		}
	}
	if id.Name == "" {
		d.stranger(w, finding{Problem: lb.Problem{Field: "metadata.name",
			Reason: "is missing, so the " + kind.Name + " cannot be told from others", Remedy: "give it a name"}})
		return
	}
	if kind.Only != "" && kind.Only != id.Name {
		return
	}
	if id.Kind = kind.Name; kind.ClusterWide {
		id.Namespace = ""
	}
	o := object{ID: id, bad: true, owner: kind.Owner(id.Key, h.Metadata.Labels)}
	if slip != nil {
		d.reject(id, *slip)
	} else {
		d.convert(raw, *kind, &o)
	}
	if o.bad && kind.Name == objects.SliceKind && o.owner.Name == "" && !hasLabels(raw) {
		d.opaque = true // any Service may have lost endpoints
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
