package fences

import (
	"path"
	"regexp"
	"strings"
)

// function is a function of bpf/.
type function struct {
	file      string // below bpf/
	signature string // up to the name
	calls     []string
}

var (
	// definition is a function as clang-format writes it: its name, and the body
	// between two braces at the start of a line.
	definition = regexp.MustCompile(`(?ms)^((?:static|GLOBAL_FUNC|int)\b[^;{}#]*?[\s*])(\w+)\([^;{}]*?\)\n\{\n(.*?)^\}`)
	called     = regexp.MustCompile(`(\w+)\(`)
	word       = regexp.MustCompile(`\w+`)
	// callback is the start of a function that bpf_loop is given.
	callback = "static long "
)

// functionsOf reads the functions of the product's programs, by name. Of a function
// that is given to bpf_loop it says that it is called.
func functionsOf(files []file) map[string]*function {
	functions, bodies := map[string]*function{}, map[string]string{}
	for _, f := range files {
		name, ok := strings.CutPrefix(f.path, "bpf/")
		if !ok || path.Ext(name) != ".h" && name != "headgate.bpf.c" {
			continue
		}
		for _, m := range definition.FindAllStringSubmatch(withoutComments(f.data), -1) {
			functions[m[2]] = &function{file: name, signature: m[1]}
			bodies[m[2]] = m[3]
		}
	}
	for name, f := range functions {
		for _, m := range called.FindAllStringSubmatch(bodies[name], -1) {
			if functions[m[1]] != nil {
				f.calls = append(f.calls, m[1])
			}
		}
		for _, w := range word.FindAllString(bodies[name], -1) {
			if g := functions[w]; g != nil && strings.HasPrefix(g.signature, callback) {
				f.calls = append(f.calls, w)
			}
		}
	}
	return functions
}

// withoutComments is C with lines where they were.
func withoutComments(c []byte) string {
	return string(comment.ReplaceAllFunc(c, func(c []byte) []byte {
		return []byte(strings.Repeat("\n", strings.Count(string(c), "\n")))
	}))
}
