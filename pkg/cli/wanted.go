package cli

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/plan"
)

// wanted is what a person wants to see: everything, or what a word names, or what
// Services of a namespace have.
type wanted struct {
	word      string
	namespace string
	path      flowPath // of flows, which are read so
}

// everything says whether nothing is left out but other paths.
func (w wanted) everything() bool { return w.word == "" && w.namespace == "" }

// wants says whether an item is wanted: by one of its names, or by its Service.
func (w wanted) wants(one item) bool {
	if w.everything() {
		return true
	}
	owned := slices.ContainsFunc(one.owners(), w.owns)
	if w.word == "" || owned {
		return owned
	}
	inNamespace := w.namespace == "" || slices.ContainsFunc(one.owners(), wanted{namespace: w.namespace}.owns)
	return inNamespace && slices.Contains(one.names(), w.word)
}

// owns says whether a word means a Service port: namespace/name or name, with or without port
// and protocol.
func (w wanted) owns(s plan.Service) bool {
	if s == (plan.Service{}) || w.namespace != "" && w.namespace != s.Namespace {
		return false
	}
	if w.word == "" {
		return true
	}
	rest, named := strings.CutPrefix(strings.TrimPrefix(w.word, s.Namespace+"/"), s.Name)
	port := ""
	if s.Port != "" {
		port = ":" + s.Port
	}
	return named && (rest == "" || rest == port || rest == port+"/"+s.Protocol.String())
}

// isAddress says whether the word is an address, with or without port.
func (w wanted) isAddress() bool {
	_, noPort := netip.ParseAddr(w.word)
	_, noAddress := netip.ParseAddrPort(w.word)
	return noPort == nil || noAddress == nil
}

// addressNames returns what an address with port is found by: all of it, without protocol,
// without port.
func addressNames(at lb.AddrPort) []string {
	return []string{at.String(), netip.AddrPortFrom(at.Addr, at.Port).String(), at.Addr.String()}
}
