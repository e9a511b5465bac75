package kube

import (
	"crypto/x509"
	"errors"
	"maps"
	"net"
	"net/url"
	"slices"
	"strings"
	"syscall"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/source/objects"
)

// patience is how long there may be no contact before that is a problem: a server
// that restarts, or another that takes its place, needs less.
const patience = 2 * time.Second

// errSilent is that a server was asked and has not answered yet.
var errSilent = errors.New("no answer yet")

// errUnwell is that a server answered with an error of its own.
var errUnwell = errors.New("it answers with a server error")

// Problems says why there is no contact with the API server, a problem of the
// node for each server that was tried; none while there is contact. Their text
// stays the same for as long as the reason does.
func (h Health) Problems(node string, now time.Time) []lb.Problem {
	if h.Age(now) < patience {
		return nil
	}
	problem := func(server string, err error) lb.Problem {
		p := lb.Problem{Scope: lb.ScopeNode, Object: objects.NodeKind + " " + node, Field: "API server", Value: server}
		p.Reason, p.Remedy = explain(server, err)
		return p
	}
	if apierrors.ReasonForError(h.Cause) != "" {
		return []lb.Problem{problem(h.Server, h.Cause)}
	}
	var out []lb.Problem
	for _, server := range slices.Sorted(maps.Keys(h.Servers)) {
		if err := h.Servers[server]; err != nil {
			out = append(out, problem(server, err))
		}
	}
	if out == nil && h.Cause != nil {
		out = append(out, problem(h.Server, h.Cause))
	}
	return out
}

// explain says what is wrong with a server, and what to do about it.
func explain(server string, err error) (reason, remedy string) {
	const reachable = "check that it runs, and that this node reaches it"
	var unknownName *net.DNSError
	var timeout net.Error
	switch {
	case isPlaceholder(server):
		return "is the placeholder of the manifests, not a server", "set api-servers to the addresses of the API servers, such as https://192.0.2.1:6443"
	case apierrors.IsUnauthorized(err):
		return "does not accept the agent's credentials (401)", "renew the token or certificate of the kubeconfig, or the ServiceAccount of the pod"
	case apierrors.IsForbidden(err):
		return "refuses the agent (403): " + message(err), "bind the ClusterRole headgate to the agent's ServiceAccount"
	case isUntrusted(err):
		return "has a certificate that the agent does not trust", "compare the certificate authority of the kubeconfig with the cluster's, or name the server in the certificate with --tls-server-name"
	case errors.As(err, &unknownName):
		return "has a name that does not resolve", "give --api-servers addresses in place of names, or mend the node's resolver"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "refuses connections", "check that it runs, and listens at this address and port"
	case errors.Is(err, errSilent), errors.As(err, &timeout) && timeout.Timeout():
		return "does not answer", reachable
	default:
		return "cannot be used: " + err.Error(), reachable
	}
}

// isPlaceholder says whether a server has a name that is reserved for nobody
// (RFC 6761), as the one in deploy/base.
func isPlaceholder(server string) bool {
	u, err := url.Parse(server)
	return err == nil && strings.HasSuffix(u.Hostname(), ".invalid")
}

func isUntrusted(err error) bool {
	var authority x509.UnknownAuthorityError
	var host x509.HostnameError
	var invalid x509.CertificateInvalidError
	return errors.As(err, &authority) || errors.As(err, &host) || errors.As(err, &invalid)
}
