package manifest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/headgate/headgate/pkg/source/convert"
	"github.com/headgate/headgate/pkg/source/objects"
)

// kinds are those that are read.
type kinds []objects.Kind

func newKinds(node string, opts convert.Options) kinds {
	return slices.DeleteFunc(objects.Kinds(node, opts, true), func(k objects.Kind) bool { return k.APIOnly })
}

// named returns a kind by its name, nil where it is not read.
func (ks kinds) named(name string) *objects.Kind {
	for i := range ks {
		if ks[i].Name == name {
			return &ks[i]
		}
	}
	return nil
}

// listOf says whether an object is a list of others; item is the kind of all
// of them where the list is a typed one, such as ServiceList.
func (ks kinds) listOf(apiVersion, kind string) (item *objects.Kind, ok bool) {
	name, ok := strings.CutSuffix(kind, "List")
	item = ks.named(name)
	if !ok || name != "" && (item == nil || item.Version.String() != apiVersion) {
		return nil, false
	}
	return item, true
}

// mistake is a field that is not what it was meant to be.
type mistake struct{ field, value, reason, remedy string }

// meant returns which kind an object was meant to be, and what is wrong with
// how it says so. A misspelt Service is a bad Service rather than something
// foreign: what it was before the slip stays in force. It is nil for objects
// that have nothing to do with load balancing, as far as one can tell.
func (ks kinds) meant(apiVersion, kind string) (*objects.Kind, *mistake) {
	for i := range ks {
		k := &ks[i]
		if !sameGroup(apiVersion, k.Version.Group) {
			continue
		}
		if kind != k.Name && !misspelt(kind, k.Name) {
			continue
		}
		if kind != k.Name {
			return k, &mistake{"kind", kind, "is not a known kind", fmt.Sprintf("write %q", k.Name)}
		}
		if v := k.Version.String(); apiVersion != v {
			return k, &mistake{"apiVersion", apiVersion, "is not a known version of " + k.Name, fmt.Sprintf("write %q", v)}
		}
		return k, nil
	}
	return nil, &mistake{"kind", kind, fmt.Sprintf("is not a known kind of apiVersion %q", apiVersion),
		"keep only " + ks.String() + " here"}
}

// String returns the kinds: "Service (v1), EndpointSlice (discovery.k8s.io/v1)".
func (ks kinds) String() string {
	var all []string
	for _, k := range ks {
		all = append(all, k.Name+" ("+k.Version.String()+")")
	}
	return strings.Join(all, ", ")
}

// sameGroup says whether an object of that version can be meant as one of a group, by
// its first word: other projects have kinds of the same names (Knative's Service).
func sameGroup(apiVersion, meant string) bool {
	group, _, ok := strings.Cut(apiVersion, "/")
	if !ok {
		group = "" // the version of a core kind, or no version at all
	}
	if meant == "" {
		return group == "" || group == "core"
	}
	first, _, _ := strings.Cut(meant, ".")
	return group == "" || strings.HasPrefix(group, first)
}

// misspelt says whether a word is another with a slip or two.
func misspelt(word, meant string) bool {
	slips := 2
	if len(meant) < 6 {
		slips = 1
	}
	return distance(strings.ToLower(word), strings.ToLower(meant)) <= slips
}

// distance counts the letters to insert, remove or replace (Levenshtein 1965).
func distance(a, b string) int {
	if d := len(a) - len(b); d > 3 || d < -3 {
		return 4 // far enough, however long the word
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replaced := diagonal
			if a[i] != b[j] {
				replaced++
			}
			diagonal = row[j+1]
			row[j+1] = min(replaced, row[j+1]+1, row[j]+1)
		}
	}
	return row[len(b)]
}
