package preflight

import (
	"cmp"
	"context"
	"errors"
	"net/netip"
	"strings"

	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/netdev"
	"github.com/headgate/headgate/pkg/source/kube"
)

// source says whether Services can be had.
func (r *Report) source(ctx context.Context, cfg Config) {
	switch {
	case cfg.Manifests != nil:
		if err := cfg.Manifests(); err != nil {
			r.unusable(err)
			return
		}
		r.ok("source", "the directory of YAML can be read")
	case cfg.Kube != nil:
		r.cluster(ctx, *cfg.Kube)
	default:
		r.add(noSource, "no cluster and no directory was named")
	}
}

func (r *Report) cluster(ctx context.Context, cfg kube.Config) {
	visitor, answers, err := kube.Visit(ctx, cfg)
	if err != nil {
		r.unusable(err)
		return
	}
	answered := false
	for _, a := range answers {
		answered = answered || a.Problem == nil
		r.server(a)
	}
	if !answered {
		return
	}
	r.rights(ctx, visitor, cfg)
	r.clusterIPs(ctx, visitor)
}

// unusable adds an error that may say its remedy itself.
func (r *Report) unusable(err error) {
	found, remedy, _ := strings.Cut(err.Error(), "; ")
	r.addWith(configWrong, cmp.Or(remedy, kinds[configWrong].Remedy), "%s", found)
}

func (r *Report) server(a kube.Answer) {
	var p lb.Problem
	switch {
	case a.Problem == nil && a.Version == "":
		r.ok("api-server", "%s answers", a.Server)
	case a.Problem == nil:
		r.ok("api-server", "%s answers: Kubernetes %s", a.Server, a.Version)
	case errors.As(a.Problem, &p):
		r.addWith(serverAway, p.Remedy, "%s %s", p.Value, p.Reason)
	default:
		r.add(serverAway, "%s: %s", a.Server, a.Problem)
	}
}

// rights says which rights are missing: those apart without which nothing works.
func (r *Report) rights(ctx context.Context, v *kube.Visitor, cfg kube.Config) {
	lacking, err := v.Lacks(ctx)
	if err != nil {
		r.add(notKnown, "which rights the API server grants: %s", err)
		return
	}
	words := map[bool][]string{}
	for _, right := range lacking {
		words[right.Needed] = append(words[right.Needed], right.String())
	}
	if needed := words[true]; len(needed) > 0 {
		r.add(rightNeeded, "the API server does not grant: %s", strings.Join(needed, ", "))
	}
	if others := words[false]; len(others) > 0 {
		r.add(rightMissing, "the API server does not grant: %s", strings.Join(others, ", "))
	}
	if len(lacking) == 0 {
		r.ok("rights", "the API server grants all %d", len(kube.Rights(cfg)))
	}
}

// clusterIPs says which ClusterIPs are addresses of this node.
func (r *Report) clusterIPs(ctx context.Context, v *kube.Visitor) {
	all, err := v.ClusterIPs(ctx)
	if err != nil {
		return // the right to list them is missing, which was said
	}
	local, err := netdev.Addresses()
	if err != nil {
		r.add(notKnown, "%s", err)
		return
	}
	for _, addr := range addressesOf(ipvsDevice) {
		delete(local, addr) // all ClusterIPs are there while kube-proxy is in this mode
	}
	found := false
	for _, c := range all {
		if addr, err := netip.ParseAddr(c.Addr); err == nil && local[addr] {
			found = true
			r.add(localClusterIP, "%s of Service %s is an address of this node", addr, c.Service)
		}
	}
	if !found {
		r.ok("cluster-ips", "none of %d is an address of this node", len(all))
	}
}
