package preflight

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/headgate/headgate/pkg/datapath"
	"github.com/headgate/headgate/pkg/netdev"
)

// owners are who names programs so.
var owners = []struct{ prefix, owner string }{
	{"cil_", "Cilium"}, {"calico_", "Calico"}, {"cali_", "Calico"}, {"sd_", "systemd"},
}

// remedies are those of an owner, in place of that of the kind.
var remedies = map[string]map[kind]string{
	"Cilium": {
		foreignSockets: "set kubeProxyReplacement=false and socketLB.enabled=false among the Helm values of Cilium",
		foreignPackets: "set kubeProxyReplacement=false among the Helm values of Cilium; its programs for policies may stay",
	},
	"Calico": {
		foreignSockets: "set bpfConnectTimeLoadBalancing: Disabled in Calico's FelixConfiguration",
		foreignPackets: "set bpfEnabled: false in Calico's FelixConfiguration: its BPF data plane balances Services itself",
	},
}

// foreign says which programs of others are where ours would be.
func (r *Report) foreign(cfg datapath.Config, devices []netdev.Device, procs []process) {
	found, err := datapath.ForeignSockets(cfg.Root, cfg.Cgroup)
	if err != nil {
		r.add(notKnown, "which programs of others are at sockets: %s", err)
	}
	exclusive := ""
	for _, f := range found {
		if f.Exclusive {
			exclusive = fmt.Sprintf("%s (program %d) at %s of %s lets no other program be attached", f.Name, f.ID, f.Hook, cfg.Cgroup)
		}
	}
	if exclusive != "" {
		r.add(cgroupTaken, "%s", exclusive)
	}
	some := r.owned(foreignSockets, cfg.Cgroup, found, procs)
	for _, d := range devices {
		found, err := datapath.ForeignPackets(cfg.Root, d.Index)
		if err != nil {
			r.add(notKnown, "which programs of others are at device %s: %s", d.Name, err)
		}
		some = r.owned(foreignPackets, d.Name, found, procs) || some
	}
	if !some && err == nil {
		r.ok("programs-of-others", "none at the hooks of Headgate")
	}
}

// owned adds a finding for each owner of programs somewhere, and says whether there was one.
func (r *Report) owned(k kind, where string, found []datapath.Foreign, procs []process) bool {
	byOwner := map[string][]string{}
	for _, f := range found {
		owner := ownerOfProgram(f, procs)
		byOwner[owner] = append(byOwner[owner], f.Name+" at "+f.Hook)
	}
	for _, owner := range slices.Sorted(maps.Keys(byOwner)) {
		remedy, ok := remedies[owner][k]
		if !ok {
			remedy = kinds[k].Remedy
		}
		r.addWith(k, remedy, "%s has programs of %s: %s", where, owner, strings.Join(byOwner[owner], ", "))
	}
	return len(byOwner) > 0
}

// ownerOfProgram says whose a program is: as its name tells, or by a process that holds it.
func ownerOfProgram(f datapath.Foreign, procs []process) string {
	for _, o := range owners {
		if strings.HasPrefix(f.Name, o.prefix) {
			return o.owner
		}
	}
	if p, ok := holderOf(procs, f.ID); ok {
		return p.String()
	}
	return "an unknown owner"
}
