package preflight

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/headgate/headgate/pkg/netdev"
)

// paths says whether replies may come in by another device than requests leave by: on a
// device without an address of its own the kernel's filter drops them, a loose one, too.
func (r *Report) paths(devices []netdev.Device) {
	var filtered []string
	for _, d := range devices {
		if !slices.ContainsFunc(addressesOf(d.Name), netip.Addr.Is4) && isFiltered(d.Name) {
			filtered = append(filtered, d.Name)
		}
	}
	if len(filtered) > 0 {
		r.add(filteredPaths, "%s: no IPv4 address, and rp_filter is not 0", strings.Join(filtered, ", "))
		return
	}
	r.ok("reverse-path", "drops no replies at these devices")
}

// addressesOf returns the addresses of a device, none where it is gone.
func addressesOf(device string) (all []netip.Addr) {
	d, err := net.InterfaceByName(device)
	if err != nil {
		return nil
	}
	addrs, _ := d.Addrs() // gone meanwhile
	for _, a := range addrs {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			all = append(all, p.Addr())
		}
	}
	return all
}

// isFiltered says whether the kernel filters by the reverse path: the greater of both
// settings counts.
func isFiltered(device string) bool {
	all, _ := readNumber("/proc/sys/net/ipv4/conf/all/rp_filter")
	own, _ := readNumber(filepath.Join("/proc/sys/net/ipv4/conf", device, "rp_filter"))
	return max(all, own) > 0
}

// conntrack says how full the kernel's table of connections is, by the files of a directory.
func (r *Report) conntrack(dir string) {
	count, err := readNumber(filepath.Join(dir, "nf_conntrack_count"))
	if os.IsNotExist(err) {
		r.ok("conntrack", "the kernel tracks no connections")
		return
	}
	most, mostErr := readNumber(filepath.Join(dir, "nf_conntrack_max"))
	switch {
	case err != nil || mostErr != nil:
		r.add(notKnown, "the size of the kernel's table of connections cannot be read")
	case most > 0 && count > most*3/4:
		r.add(conntrackFull, "%d of %d connections that the kernel tracks", count, most)
	default:
		r.ok("conntrack", "%d of %d connections that the kernel tracks", count, most)
	}
}

func readNumber(file string) (int, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(text)))
}

// meshProxies are processes that a service mesh runs beside those of its pods, or on each
// node.
var meshProxies = []string{"pilot-agent", "linkerd2-proxy", "ztunnel", "kuma-dp", "consul-dataplane"}

// meshes says which proxies of meshes run here.
func (r *Report) meshes(procs []process) {
	count := map[string]int{}
	for _, p := range procs {
		count[p.name]++
	}
	found := false
	for _, name := range meshProxies {
		// The kernel cuts the names of processes.
		if n := count[name[:min(len(name), 15)]]; n > 0 {
			found = true
			r.add(meshHere, "%s", plural(n, "process", "processes")+" of "+name)
		}
	}
	if !found {
		r.ok("mesh", "no proxy of a known mesh is seen here")
	}
}

func plural(n int, one, more string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, more)
}
