package manifest

import (
	"fmt"
	"strings"
)

// The kinds of objects that are read.
const (
	serviceKind = "Service"
	sliceKind   = "EndpointSlice"
	nodeKind    = "Node"
	podKind     = "Pod"
)

// versionOf returns the one version of a kind that is read, "" for others.
func versionOf(kind string) string {
	switch kind {
	case serviceKind, nodeKind, podKind:
		return "v1"
	case sliceKind:
		return "discovery.k8s.io/v1"
	default:
		return ""
	}
}

// listOf says whether an object is a list of others; item is the kind of all
// of them where the list is a typed one, such as ServiceList.
func listOf(apiVersion, kind string) (item string, ok bool) {
	item, ok = strings.CutSuffix(kind, "List")
	if !ok || item != "" && versionOf(item) != apiVersion {
		return "", false
	}
	return item, true
}

// mistake is a field that is not what it was meant to be.
type mistake struct{ field, value, reason, remedy string }

// meant returns which kind an object was meant to be, and what is wrong with
// how it says so. A misspelt Service is a bad Service rather than something
// foreign: what it was before the slip stays in force. kind is "" for objects
// that have nothing to do with load balancing, as far as one can tell.
func meant(apiVersion, kind string) (string, *mistake) {
	for _, k := range []string{serviceKind, sliceKind, nodeKind, podKind} {
		if !sameGroup(apiVersion, k) {
			continue
		}
		if kind != k && !misspelt(kind, k) {
			continue
		}
		if kind != k {
			return k, &mistake{"kind", kind, "is not a known kind", fmt.Sprintf("write %q", k)}
		}
		if v := versionOf(k); apiVersion != v {
			return k, &mistake{"apiVersion", apiVersion, "is not a known version of " + k, fmt.Sprintf("write %q", v)}
		}
		return k, nil
	}
	return "", &mistake{"kind", kind, fmt.Sprintf("is not a known kind of apiVersion %q", apiVersion),
		"keep only Service, Node and Pod (v1) and EndpointSlice (discovery.k8s.io/v1) here"}
}

// sameGroup says whether an object of that version can be meant as that kind:
// other projects have kinds of the same names (Knative's Service).
func sameGroup(apiVersion, kind string) bool {
	group, _, ok := strings.Cut(apiVersion, "/")
	if !ok {
		group = "" // the version of a core kind, or no version at all
	}
	if kind == sliceKind {
		return group == "" || strings.HasPrefix(group, "discovery")
	}
	return group == "" || group == "core"
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
