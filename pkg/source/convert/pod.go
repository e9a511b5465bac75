package convert

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/headgate/headgate/pkg/lb"
)

// socketBalancing is the annotation, or the label, by which a Pod says whether
// its sockets are told where backends are: "on", or "off" for Pods whose packets
// are to be balanced instead, as where a mesh redirects them by their address.
const socketBalancing = "headgate.dev/socket-balancing"

// Pod returns what matters of a Pod, nil where nothing does: one without
// addresses, one with the network of its node, and one that has ended. An
// annotation has precedence over a label, and both over the runtime class.
// Problems reads the error; beside one, the Pod is to be used all the same.
func (o Options) Pod(p *corev1.Pod) (*lb.Pod, error) {
	if p.Spec.HostNetwork || p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
		return nil, nil
	}
	out := &lb.Pod{PodName: lb.PodName{Namespace: p.Namespace, Name: p.Name}}
	f := &findings{object: "Pod " + out.String()}
	out.PacketsOnly = f.packetsOnly(p, o.RuntimeClasses)
	ips := p.Status.PodIPs
	if len(ips) == 0 && p.Status.PodIP != "" {
		ips = []corev1.PodIP{{IP: p.Status.PodIP}}
	}
	for _, ip := range ips {
		addr, err := netip.ParseAddr(ip.IP)
		if err != nil {
			f.add("status.podIPs", ip.IP, "is not an IP address", "write one such as 10.244.1.10")
			continue
		}
		out.Addrs = append(out.Addrs, addr.Unmap())
	}
	if len(out.Addrs) == 0 {
		return nil, f.err()
	}
	return out, f.err()
}

// packetsOnly says whether the sockets of a Pod are to be left alone.
func (f *findings) packetsOnly(p *corev1.Pod, runtimeClasses []string) bool {
	for field, values := range map[string]map[string]string{"metadata.annotations": p.Annotations, "metadata.labels": p.Labels} {
		switch v, ok := values[socketBalancing]; {
		case !ok || v == "on" || v == "off":
		default:
			f.add(field, v, "is not a value of "+socketBalancing, `write "on" or "off"`)
		}
	}
	for _, values := range []map[string]string{p.Annotations, p.Labels} {
		if v := values[socketBalancing]; v == "on" || v == "off" {
			return v == "off"
		}
	}
	return p.Spec.RuntimeClassName != nil && slices.Contains(runtimeClasses, *p.Spec.RuntimeClassName)
}
