package command

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// path is a template of kubectl's JSONPath: text, and in braces what stands there: a path
// such as .items[*].name or .items[?(@.name=="a")], a text in quotes, or range with a path, up to end.
// Slices and .. are not taken: kubectl's own library needs text/template, which makes the program a sixth larger.
type path struct{ parts []part }

// part is text, steps to values, or with a body what is done for each of these.
type part struct {
	text  string
	steps []step
	body  *path
}

// step goes from a value to others: to the one with a name, to the one with an index, to all, or to those
// that a filter takes.
type step struct {
	name   string
	index  int
	kind   stepKind
	filter *filter
}

type stepKind uint8

const (
	stepName stepKind = iota
	stepIndex
	stepAll
	stepFilter
)

var (
	stepText   = regexp.MustCompile(`^(?:\.([\w-]+)|\.?\[(\*|-?\d+)\]|\['([^']*)'\]|\["([^"]*)"\]|\.(\*))`)
	filterText = regexp.MustCompile(`^\.?\[\?\(\s*@([^\s=!<>()]*)\s*(?:(==|!=|<=|>=|<|>)\s*("[^"]*"|'[^']*'|[\w.+-]+)\s*)?\)\]`)
)

// parsePath reads a template. As for kubectl braces and the first dot may be missing.
func parsePath(template string) (*path, error) {
	if template == "" {
		return nil, errors.New("no path")
	}
	if !strings.Contains(template, "{") {
		template = "{." + strings.TrimPrefix(template, ".") + "}"
	}
	p, rest, err := parseParts(template, false)
	if err == nil && rest != "" {
		err = errors.New("{end} without {range}")
	}
	return p, err
}

// parseParts reads up to the end, or within a range up to its end.
func parseParts(template string, within bool) (*path, string, error) {
	p := &path{}
	for template != "" {
		text, rest, braced := strings.Cut(template, "{")
		p.parts = append(p.parts, part{text: text})
		if !braced {
			break
		}
		inner, after, closed := strings.Cut(rest, "}")
		inner, template = strings.TrimSpace(inner), after
		if !closed {
			return nil, "", errors.New("a brace is not closed")
		}
		if inner == "end" {
			if !within {
				return p, "{end}" + template, nil
			}
			return p, template, nil
		}
		one, err := parsePart(inner)
		if err != nil {
			return nil, "", err
		}
		if strings.HasPrefix(inner, "range ") {
			if one.body, template, err = parseParts(template, true); err != nil {
				return nil, "", err
			}
		}
		p.parts = append(p.parts, one)
	}
	if within {
		return nil, "", errors.New("{range} without {end}")
	}
	return p, "", nil
}

// parsePart reads what stands in braces.
func parsePart(inner string) (part, error) {
	if strings.HasPrefix(inner, `"`) || strings.HasPrefix(inner, "'") {
		text, err := strconv.Unquote(`"` + strings.Trim(inner, inner[:1]) + `"`)
		return part{text: text}, err
	}
	steps, err := parseSteps(strings.TrimPrefix(strings.TrimPrefix(strings.TrimSpace(strings.TrimPrefix(inner, "range ")), "$"), "@"))
	return part{steps: steps}, err
}

// parseSteps reads a path. That of one value, without steps, is not nil.
func parseSteps(path string) ([]step, error) {
	steps := []step{}
	for rest := path; rest != "" && rest != "."; {
		var one step
		m := stepText.FindStringSubmatch(rest)
		if m != nil {
			one = stepOf(m)
		} else if m = filterText.FindStringSubmatch(rest); m != nil {
			f, err := parseFilter(m[1], m[2], m[3])
			if err != nil {
				return nil, err
			}
			one = step{kind: stepFilter, filter: f}
		} else {
			return nil, fmt.Errorf("%q is no path: write one such as .items[*].name", path)
		}
		rest = rest[len(m[0]):]
		steps = append(steps, one)
	}
	return steps, nil
}

func stepOf(m []string) step {
	if m[2] == "*" || m[5] == "*" {
		return step{kind: stepAll}
	}
	if m[2] != "" {
		n, _ := strconv.Atoi(m[2]) // digits; those of too many are beyond every list
		return step{index: n, kind: stepIndex}
	}
	return step{name: m[1] + m[3] + m[4]}
}

// print returns what the template makes of a value, such as json.Unmarshal returns it.
func (p *path) print(value any) string {
	var out strings.Builder
	for _, one := range p.parts {
		out.WriteString(one.text)
		found := []any{value}
		for _, s := range one.steps {
			found = s.from(found)
		}
		switch {
		case one.body != nil:
			for _, v := range found {
				out.WriteString(one.body.print(v))
			}
		case one.steps != nil:
			var words []string
			for _, v := range found {
				words = append(words, plainText(v))
			}
			out.WriteString(strings.Join(words, " "))
		}
	}
	return out.String()
}

// from returns what the step finds in each of some values.
func (s step) from(values []any) (found []any) {
	for _, value := range values {
		switch v := value.(type) {
		case map[string]any:
			if one, ok := v[s.name]; ok && s.kind == stepName {
				found = append(found, one)
			}
		case []any:
			n := s.index
			if n < 0 {
				n += len(v)
			}
			switch {
			case s.kind == stepAll:
				found = append(found, v...)
			case s.kind == stepFilter:
				for _, one := range v {
					if s.filter.takes(one) {
						found = append(found, one)
					}
				}
			case s.kind == stepIndex && n >= 0 && n < len(v):
				found = append(found, v[n])
			}
		}
	}
	return found
}

// plainText is a text without quotes, and anything else as JSON has it.
func plainText(value any) string {
	if text, ok := value.(string); ok {
		return text
	}
	return jsonText(value)
}

// jsonText is a value as JSON has it, in one line.
func jsonText(value any) string {
	text, err := json.Marshal(value)
	if err != nil {
		return err.Error()
	}
	return string(text)
}
