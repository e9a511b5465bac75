package cli

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/headgate/headgate/pkg/datapath"
	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/netdev"
)

// asker is who asks an address: somebody elsewhere, whose packets come in, or sockets on this node.
type asker struct {
	at     netip.AddrPort // of packets; not valid for sockets
	pod    string         // whose sockets they are; "" for a process on this node
	addrs  []netip.Addr   // of the pod
	where  string         // node and zone of the pod, as far as they are known
	netns  string         // file of the network namespace of the pod
	cookie uint64         // of the network namespace of the sockets
	arrival
}

// podWord begins what --from says of a pod.
const podWord = "pod:"

// clientPort is the source port of a client that names none.
const clientPort = 40000

// asker finds who is meant by --from; "" is a process on this node.
func (e *env) asker(from, namespace string) (a asker, err error) {
	if pod, ok := strings.CutPrefix(from, podWord); ok {
		return e.podAsker(pod, namespace)
	}
	if a.at, err = parseClient(from); err != nil || a.at.IsValid() {
		return a, err
	}
	a.cookie, err = datapath.OwnNamespace()
	return a, err
}

// parseClient reads the address of a client; the zero one is a process on this node.
func parseClient(word string) (netip.AddrPort, error) {
	if word == "" {
		return netip.AddrPort{}, nil
	}
	if addr, err := netip.ParseAddr(word); err == nil {
		return netip.AddrPortFrom(addr.Unmap(), clientPort), nil
	}
	at, err := netip.ParseAddrPort(word)
	if err != nil {
		return at, fmt.Errorf("--from %s: not an address; write one such as 192.0.2.1 or 192.0.2.1:40000, or pod:NAMESPACE/NAME", lb.Quote(word))
	}
	return netip.AddrPortFrom(at.Addr().Unmap(), at.Port()), nil
}

// podAsker finds a pod on this node, by its name or its address.
func (e *env) podAsker(word, namespace string) (a asker, err error) {
	a.pod = "pod " + word
	node := ""
	if addr, bad := netip.ParseAddr(word); bad == nil {
		a.addrs = []netip.Addr{addr.Unmap()}
	} else if node, err = e.namePod(&a, podNamed(word, namespace)); err != nil {
		return a, err
	}
	files, err := a.findNamespace(func(string) bool { return true })
	switch {
	case len(files) == 1:
		return a, nil // one that cannot be entered is that of another pod
	case len(files) > 1:
		return a, fmt.Errorf("--from %s%s: %d network namespaces on this node have %s: name one, as in nsenter --net=%s headgate explain", podWord, lb.Quote(word), len(files), a.addrs[0], files[0])
	}
	remedy := "ask on its node; of packets from elsewhere --from " + a.addrs[0].String() + " tells"
	if node != "" {
		remedy = fmt.Sprintf("ask on its node, %s (kubectl headgate --node %s explain)", node, node)
	}
	return a, errors.Join(fmt.Errorf("--from %s%s: no network namespace on this node has %s: %s", podWord, lb.Quote(word), a.addrs[0], remedy), err)
}

// findNamespace finds the network namespaces that have an address of the pod, of those that are meant, and takes the last.
func (a *asker) findNamespace(isMeant func(file string) bool) (files []string, err error) {
	err = datapath.EachNamespace(func(file string, cookie uint64) error {
		has, err := netdev.Addresses()
		if isMeant(file) && slices.ContainsFunc(a.addrs, func(one netip.Addr) bool { return has[one] }) {
			a.netns, a.cookie = file, cookie
			files = append(files, file)
		}
		return err
	})
	return files, err
}

// podNamed reads [NAMESPACE/]NAME.
func podNamed(word, namespace string) lb.PodName {
	if in, name, ok := strings.Cut(word, "/"); ok {
		return lb.PodName{Namespace: in, Name: name}
	}
	return lb.PodName{Namespace: cmp.Or(namespace, "default"), Name: word}
}

// namePod takes what the agent says of a pod, and returns its node. It knows those that are backends.
func (e *env) namePod(a *asker, pod lb.PodName) (node string, err error) {
	all, err := e.place().AskBackends(e.asking(), pod.String())
	if err != nil {
		return "", fmt.Errorf("--from pod:%s: nobody says which address it has: %w; write its address, such as pod:10.244.1.7", lb.Quote(pod.String()), err)
	}
	for d := range all.All() {
		if d.Pod != pod {
			continue
		}
		if !slices.Contains(a.addrs, d.Backend.Addr) {
			a.addrs = append(a.addrs, d.Backend.Addr)
		}
		node, a.where = d.Node, placeOf("", d.Node, d.Zone)
	}
	if a.addrs == nil {
		return "", fmt.Errorf("--from pod:%s: the agent knows no such pod, since none is behind a Service: write its address, such as pod:10.244.1.7 (kubectl get pods -o wide)", lb.Quote(pod.String()))
	}
	a.pod = "pod " + pod.String()
	return node, nil
}

// placeOf puts together what is known of where somebody is.
func placeOf(known ...string) string {
	return strings.Join(slices.DeleteFunc(known, func(s string) bool { return s == "" }), ", ")
}

// String says who it is.
func (a asker) String() string {
	switch {
	case a.at.IsValid():
		return a.at.String()
	case a.pod == "" && a.addrs == nil:
		return "a process on this node"
	case a.pod == "":
		return "a process on this node, " + a.addrs[0].String()
	}
	var addrs []string
	for _, one := range a.addrs {
		if !strings.HasSuffix(a.pod, " "+one.String()) {
			addrs = append(addrs, one.String())
		}
	}
	return placeOf(append(append([]string{a.pod}, addrs...), a.where)...)
}

// host is whose routes its packets take.
func (a asker) host() string {
	if a.netns != "" {
		return a.pod
	}
	return "this node"
}

// address is what source ranges see of it in the family of an address, in words.
func (a asker) address(ip4 bool) string {
	for _, one := range append([]netip.Addr{a.at.Addr()}, a.addrs...) {
		if one.IsValid() && one.Is4() == ip4 {
			return one.String()
		}
	}
	return "the address of this node"
}
