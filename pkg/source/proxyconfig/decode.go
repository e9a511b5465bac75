package proxyconfig

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/headgate/headgate/pkg/lb"
)

// What the file has to say it is.
const (
	apiVersion = "kubeproxy.config.k8s.io/v1alpha1"
	objectKind = "KubeProxyConfiguration"
)

// separator stands between the documents of a YAML file.
var separator = regexp.MustCompile(`(?m)^---(?:[ \t].*)?\r?$`)

// decode returns the fields of the first document, with numbers as json.Number.
// What kube-proxy reads leniently is a warning.
func decode(data []byte) (map[string]any, []lb.Problem, error) {
	text, more := first(string(data))
	var warnings []lb.Problem
	if more {
		warnings = append(warnings, lb.Problem{Reason: "more documents follow the first, which are ignored"})
	}
	raw, strict := yaml.YAMLToJSONStrict([]byte(text))
	if strict != nil {
		var err error
		if raw, err = yaml.YAMLToJSON([]byte(text)); err != nil {
			return nil, nil, fmt.Errorf("no YAML: %s", oneLine(err))
		}
		warnings = append(warnings, lb.Problem{Reason: oneLine(strict)})
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	var doc map[string]any
	if err := dec.Decode(&doc); err != nil || doc == nil {
		return nil, nil, errors.New("is no object; write apiVersion, kind and so on")
	}
	for _, field := range []struct{ name, want string }{{"apiVersion", apiVersion}, {"kind", objectKind}} {
		switch got := doc[field.name]; got {
		case field.want:
		case nil:
			return nil, nil, fmt.Errorf("%s: is missing; write %s", field.name, field.want)
		default:
			return nil, nil, fmt.Errorf("%s %s: is not that of kube-proxy's configuration; write %s", field.name, lb.Quote(written(got)), field.want)
		}
	}
	return doc, warnings, nil
}

// first returns the first document that says something, and whether there are
// more.
func first(text string) (document string, more bool) {
	for _, part := range separator.Split(text, -1) {
		switch {
		case !saysSomething(part):
		case document == "":
			document = part
		default:
			return document, true
		}
	}
	return document, false
}

// saysSomething is false for blank lines and comments.
func saysSomething(text string) bool {
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line != "" && !strings.HasPrefix(line, "#") {
			return true
		}
	}
	return false
}

// oneLine returns what a YAML error says, without its line breaks.
func oneLine(err error) string {
	text := strings.NewReplacer("error converting YAML to JSON: ", "", "yaml: ", "", "unmarshal errors:", "").Replace(err.Error())
	return strings.Join(strings.Fields(text), " ")
}
