package demo

import (
	"net/netip"
	"slices"
	"strings"
)

// withoutEndpoint does what a person with an editor does: it returns the text
// of a YAML file without the endpoints that have one of addrs, and how many
// they were. Everything else stays as written. It reads EndpointSlices in
// block style, as examples/ has them, and no other YAML.
func withoutEndpoint(text string, addrs []netip.Addr) (edited string, removed int) {
	var kept strings.Builder
	inEndpoints := false
	for lines := strings.SplitAfter(text, "\n"); len(lines) > 0; {
		size := 1
		switch {
		case inEndpoints && isItem(lines[0]):
			size = itemSize(lines)
		case isKey(lines[0]):
			inEndpoints = strings.HasPrefix(lines[0], "endpoints:")
		}
		block := strings.Join(lines[:size], "")
		lines = lines[size:]
		if inEndpoints && hasAddress(block, addrs) {
			removed++
			continue
		}
		kept.WriteString(block)
	}
	return kept.String(), removed
}

// itemSize returns how many lines the list item has that begins with the first
// of lines: those that follow it further to the right.
func itemSize(lines []string) int {
	for i, line := range lines[1:] {
		if indent(line) <= indent(lines[0]) {
			return i + 1
		}
	}
	return len(lines)
}

// isKey says whether line is a field of an object or begins a new one.
func isKey(line string) bool {
	return indent(line) == 0 && strings.Trim(line, "\r\n") != "" && line[0] != '#'
}

func isItem(line string) bool { return strings.HasPrefix(strings.TrimLeft(line, " "), "- ") }

func indent(line string) int { return len(line) - len(strings.TrimLeft(line, " ")) }

func hasAddress(block string, addrs []netip.Addr) bool {
	words := strings.FieldsFunc(block, func(r rune) bool { return strings.ContainsRune(" \t\r\n[],\"'", r) })
	return slices.ContainsFunc(words, func(word string) bool {
		addr, err := netip.ParseAddr(word)
		return err == nil && slices.Contains(addrs, addr)
	})
}
