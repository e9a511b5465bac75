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
		r.add(k, "%s has programs of %s: %s", where, owner, strings.Join(byOwner[owner], ", "))
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
