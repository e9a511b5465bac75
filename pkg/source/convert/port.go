package convert

import (
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"

	"github.com/headgate/headgate/pkg/lb"
)

const (
	portReason = "is out of range"
	portRemedy = "give it a port from 1 to 65535"
)

// portKey is what no two ports of one Service may share.
type portKey struct {
	protocol lb.Protocol
	port     uint16
}

// servicePorts returns the ports of a Service, in its order.
func (f *findings) servicePorts(spec *corev1.ServiceSpec) []lb.ServicePort {
	if len(spec.Ports) == 0 {
		f.add("spec.ports", "", "is empty: a Service needs at least one port", "add a port")
		return nil
	}
	ports := make([]lb.ServicePort, 0, len(spec.Ports))
	for i := range spec.Ports {
		ports = append(ports, f.servicePort(fmt.Sprintf("spec.ports[%d]", i), spec.Type, &spec.Ports[i]))
	}
	f.distinct(ports)
	return ports
}

func (f *findings) servicePort(field string, t corev1.ServiceType, p *corev1.ServicePort) lb.ServicePort {
	out := lb.ServicePort{Name: p.Name, Protocol: f.protocol(field, p.Protocol)}
	if p.Name != "" {
		f.name(field+".name", p.Name, false)
	}
	out.Port = f.port(field+".port", p.Port)
	if p.NodePort == 0 {
		return out
	}
	out.NodePort = f.port(field+".nodePort", p.NodePort)
	if t == "" || t == corev1.ServiceTypeClusterIP {
		f.add(field+".nodePort", strconv.Itoa(int(p.NodePort)), "is given, but the Service is of type ClusterIP",
			"write type: NodePort, or remove the nodePort")
	}
	return out
}

// distinct checks what the ports of one Service must not share: addresses for
// clients, and names, which tie them to the ports of endpoints.
func (f *findings) distinct(ports []lb.ServicePort) {
	byPort, byNodePort, byName := map[portKey]int{}, map[portKey]int{}, map[string]int{}
	for i, p := range ports {
		field := fmt.Sprintf("spec.ports[%d]", i)
		if first, ok := seen(byPort, portKey{p.Protocol, p.Port}, i); ok && p.Port != 0 {
			f.add(field+".port", strconv.Itoa(int(p.Port)),
				fmt.Sprintf("has the port and protocol of spec.ports[%d]", first), "give it another port or protocol")
		}
		if first, ok := seen(byNodePort, portKey{p.Protocol, p.NodePort}, i); ok && p.NodePort != 0 {
			f.add(field+".nodePort", strconv.Itoa(int(p.NodePort)),
				fmt.Sprintf("has the nodePort and protocol of spec.ports[%d]", first), "give it another nodePort")
		}
		if p.Name == "" && len(ports) > 1 {
			f.add(field+".name", "", "is missing: a Service with several ports needs a name for each", "give it a name")
			continue
		}
		if first, ok := seen(byName, p.Name, i); ok {
			f.add(field+".name", p.Name, fmt.Sprintf("is the name of spec.ports[%d] too", first), "give it another name")
		}
	}
}

// seen returns where the key was seen first, and notes it where it was not.
func seen[K comparable](m map[K]int, key K, at int) (first int, ok bool) {
	if first, ok = m[key]; !ok {
		m[key] = at
	}
	return first, ok
}

// port returns a port that must be given; 0, with a finding, where it is not one.
func (f *findings) port(field string, value int32) uint16 {
	if value < 1 || value > 65535 {
		f.add(field, strconv.Itoa(int(value)), portReason, portRemedy)
		return 0
	}
	return uint16(value)
}

// protocol returns the protocol of the port at field, TCP where none is given.
func (f *findings) protocol(field string, p corev1.Protocol) lb.Protocol {
	switch p {
	case "", corev1.ProtocolTCP:
		return lb.TCP
	case corev1.ProtocolUDP:
		return lb.UDP
	case corev1.ProtocolSCTP:
		return lb.SCTP
	default:
		f.add(field+".protocol", string(p), "is not a protocol of Services", "write TCP, UDP or SCTP")
		return 0
	}
}
