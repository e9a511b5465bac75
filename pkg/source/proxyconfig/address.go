package proxyconfig

import (
	"net"
	"net/netip"
	"strconv"

	netutils "k8s.io/utils/net"
)

// addr reads an address, leading zeros allowed as kube-proxy does.
func (r *reader) addr(path string, otherwise netip.Addr) netip.Addr {
	s := r.text(path, "")
	if s == "" {
		return otherwise
	}
	ip, ok := netip.AddrFromSlice(netutils.ParseIPSloppy(s))
	if !ok {
		r.fail(path, s, "is not an IP address", "write one, such as 0.0.0.0")
	}
	return ip.Unmap()
}

// cidr returns one range, none if it is not one.
func (r *reader) cidr(path, s string) []netip.Prefix {
	_, ipNet, err := netutils.ParseCIDRSloppy(s)
	if err != nil {
		r.fail(path, s, "is not a prefix", "write one, such as 192.0.2.0/24, or primary, localhost or all")
		return nil
	}
	ip, _ := netip.AddrFromSlice(ipNet.IP)
	ones, _ := ipNet.Mask.Size()
	return []netip.Prefix{netip.PrefixFrom(ip, ones)}
}

// listener is where something is served.
type listener struct {
	path     string // of its address
	portPath string // of its port, where the address has none
	host     string // where nothing is said
	port     int
}

// listener returns host:port, "" for nowhere: an empty flag or port 0 says so. An
// empty field does not, since kubeadm writes every field.
func (r *reader) listener(l listener) string {
	port := r.whole(l.portPath, bounds{0, 65535}, l.port)
	address, byFlag := r.flags[l.path]
	silent := r.standalone && r.value(l.path) == nil && r.value(l.portPath) == nil
	if byFlag && address == "" || port == 0 || silent {
		return ""
	}
	return r.hostPort(l, port)
}

// hostPort reads an address with a port; without one it gets the default port.
func (r *reader) hostPort(l listener, port int) string {
	s, usual := r.text(l.path, ""), net.JoinHostPort(l.host, strconv.Itoa(port))
	if s == "" {
		return usual
	}
	if netutils.ParseIPSloppy(s) != nil {
		return net.JoinHostPort(s, strconv.Itoa(port))
	}
	h, p, err := net.SplitHostPort(s)
	n, notNumber := strconv.Atoi(p)
	switch {
	case err != nil || netutils.ParseIPSloppy(h) == nil:
		r.fail(l.path, s, "is not an IP address and a port", "write them as "+usual+", or "+l.portPath+" 0 for nowhere")
	case notNumber != nil || n < 1 || n > 65535:
		r.fail(l.path, s, "has a port that is not from 1 to 65535", "write one, such as "+usual+", or "+l.portPath+" 0 for nowhere")
	}
	return s
}
