package cli

import (
	"cmp"
	"fmt"
	"net/netip"
	"strings"

	"github.com/headgate/headgate/pkg/agent"
	"github.com/headgate/headgate/pkg/lb"
)

// remedies say what to change where a client is refused, by the reason in the word of the counter: the field of an
// object, the flag of the agent, or the command that tells more.
var remedies = map[string]func(x *explanation) string{
	"no_endpoint": func(x *explanation) string {
		if x.why == lb.WhyWeightless {
			return x.serviceName() + ": every endpoint that is ready has weight 0: give one of them another in metadata.annotations: headgate.dev/weights"
		}
		return x.serviceName() + ": " + x.whyNoEndpoint()
	},
	"no_local_endpoint": func(x *explanation) string {
		policy := "spec.internalTrafficPolicy"
		if x.asker.at.IsValid() {
			policy = "spec.externalTrafficPolicy"
		}
		return x.serviceName() + ": " + policy + ": Local, and no ready pod is on this node: write Cluster, or run a pod here"
	},
	"source_range": func(x *explanation) string {
		return fmt.Sprintf("%s: spec.loadBalancerSourceRanges: has %s: add one that contains %s", x.serviceName(), strings.Join(x.Ranges, ", "), x.asker.address(x.at.Addr.Is4()))
	},
	"no_service_port": func(*explanation) string {
		return "the Service at this address has no such port: add it to spec.ports, or ask another"
	},
	"no_service": func(*explanation) string {
		return "the address is in a service CIDR, and no Service has it: look for the Service with this spec.clusterIP, or for a stale DNS name"
	},
	"no_backend": func(*explanation) string {
		return agent.Faults["no_backend"]
	},
	"snat_exhausted": func(x *explanation) string {
		return x.serviceName() + ": " + agent.Faults["snat_exhausted"]
	},
	"fragment": func(*explanation) string {
		return "the first fragment of the datagram did not come: send datagrams that fit the MTU, and look with tcpdump for what drops fragments on the way (headgate status counts them)"
	},
	"martian": func(*explanation) string {
		return "a packet from elsewhere has a loopback address, or the address and port of a Service: look with tcpdump for who sends it (headgate service show counts those to a Service); no setting lets it in"
	},
	"no_address": func(*explanation) string {
		return "the device towards the backend has no address of this family: give it one with ip address add, or name others with --devices"
	},
	"no_flow": func(*explanation) string {
		return "the packet is within a connection that this node does not know: the client has to connect anew; where that happens often look at the memory line of headgate status, and raise --flows"
	},
	"table_full": func(*explanation) string {
		return "no flow can make room for another: " + agent.Faults["table_full"]
	},
	"carried": func(*explanation) string {
		return "another node has carried it here for a Service that is not carried, or it cannot be sent on: compare metadata.annotations: headgate.dev/forwarding as both nodes know it, and headgate peer list"
	},
	"too_long": func(*explanation) string {
		return "the packet is too long to be carried to the node of its backend: raise the MTU between nodes, or lower that of clients (docs/dsr.md); headgate peer list has it"
	},
}

// whyNoEndpoint says what of the EndpointSlices of the Service to look at.
func (x *explanation) whyNoEndpoint() string {
	switch {
	case !x.asked || len(x.Backends) > 0 || x.other != nil && x.other.Slice == "":
		return "no endpoint is ready: look at spec.selector, and at the readiness of the pods that it selects"
	case x.other == nil:
		return "no EndpointSlice with the label kubernetes.io/service-name: " + x.port.Name + " has an endpoint of this family: look at spec.selector, or, where you write EndpointSlices, at that label"
	default:
		return fmt.Sprintf("EndpointSlice %s has port %s/%s, and none is named %s/%s: write one name in spec.ports[].name and in ports[].name of the EndpointSlice; in a cluster, look at spec.ports[].targetPort: no container has a port of that name",
			x.other.Slice, cmp.Or(x.other.Port, `""`), x.other.Backend.Protocol, cmp.Or(x.port.Port, `""`), x.port.Protocol)
	}
}

// remedy says what to change for the client not to be refused.
func (x *explanation) remedy() string {
	node := ""
	if x.Refused == "no_local_endpoint" {
		node = x.node
	}
	out := x.drained(node)
	switch say := remedies[x.Refused]; {
	case out != nil && (x.Refused == "no_endpoint" || x.Refused == "no_local_endpoint"):
		return x.serviceName() + ": no endpoint is left for these clients; " + strings.Join(out, ", ") + ": drained, see headgate undrain"
	case say != nil:
		return say(x)
	}
	return "docs/metrics.md says what " + x.Refused + " means" // in the word of another version
}

// drained returns the backends on a node, "" for all nodes, that get nothing since they are drained; nil if there is none.
func (x *explanation) drained(node string) (out []string) {
	for _, b := range x.Backends {
		if b.Unused == byDrain && (node == "" || b.Node == node) {
			out = append(out, b.Backend)
		}
	}
	return out
}

// refuse says why, which counter counts it, and what to do about it.
func (x *explanation) refuse() {
	x.Outcome = "refused: " + x.Refused + ", which headgate status counts"
	if x.Service != "" {
		x.Outcome += ", and headgate service show for the Service"
	}
	x.Remedy = x.remedy()
}

// serviceName is the Service as people call it, without the port.
func (x *explanation) serviceName() string {
	service, _, _ := strings.Cut(x.Service, ":")
	return "Service " + strings.TrimSuffix(service, "/"+x.at.Protocol.String())
}

// keepSource says how the backend would see the client, where it sees the node.
func (x *explanation) keepSource(seen netip.Addr) string {
	text := fmt.Sprintf("%s: the backend sees %s, an address of this node; for it to see the client write spec.externalTrafficPolicy: Local", x.serviceName(), seen)
	switch {
	case x.Kind == lb.NodePort.String(): // is never carried
	case x.carried:
		text += "; DSR does not forward to this backend: see headgate peer list"
	default:
		text += ", or use DSR (docs/dsr.md)"
	}
	return text
}

// aboutHints says what to change for hints to count, by why they are ignored.
var aboutHints = map[lb.Why]string{
	lb.WhyHintsMissing: "hints count only where every endpoint has one: look for endpoints without in its EndpointSlices, or write metadata.annotations: headgate.dev/zone-policy: prefer-zone, which needs none",
	lb.WhyHintsOthers:  "no endpoint is meant for this node or its zone: run a pod of it here, or leave out spec.trafficDistribution",
	lb.WhyNoZone:       "hints are of zones, and this node has none: set metadata.labels: topology.kubernetes.io/zone of its Node",
}

// advise says what to look at where a client is not refused: at backends that did not take connections, else at hints
// that are ignored.
func (x *explanation) advise() {
	var failing, unreached []string
	for i := range x.Backends {
		switch b := &x.Backends[i]; {
		case b.Unused != "":
		case b.NoRoute:
			unreached = append(unreached, b.Backend)
		case b.Health != healthy:
			failing = append(failing, b.Backend)
		}
	}
	switch about := aboutHints[x.why]; {
	case x.Remedy != "":
	case unreached != nil:
		x.Remedy = fmt.Sprintf("%s has no route to %s: look at its routes, and at the pod network", x.asker.host(), strings.Join(unreached, ", "))
	case failing != nil:
		x.Remedy = fmt.Sprintf("%s did not take connections from this node: look at the pod, at the port that it listens on, and at what may filter packets on the way", strings.Join(failing, ", "))
	case about != "":
		x.Remedy = x.serviceName() + ": " + about
	}
}
