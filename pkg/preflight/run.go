package preflight

import (
	"context"
	"strings"

	"github.com/headgate/headgate/pkg/cgroup"
	"github.com/headgate/headgate/pkg/datapath"
	"github.com/headgate/headgate/pkg/netdev"
	"github.com/headgate/headgate/pkg/source/kube"
)

// Config is what an agent would be told.
type Config struct {
	Datapath  datapath.Config
	Devices   []string // patterns of those on which others reach the node
	Addresses []Address
	Keys      func() error // why the keys of the agent cannot be read
	// Source is where Services come from: nil where nothing was said, an error for a bad
	// folder, or the API server.
	Manifests func() error
	Kube      *kube.Config
}

// Address is one that the agent listens on.
type Address struct {
	Flag   string
	Value  string // host:port, "" for nowhere
	Health bool   // load balancers and the kubelet ask there
}

// Run looks at the node of the calling thread's network namespace, and at its cluster.
func Run(ctx context.Context, cfg Config) Report {
	r := &Report{Findings: []Finding{}}
	if cfg.Datapath.Cgroup == "" {
		cfg.Datapath.Cgroup, _ = cgroup.Root() // that there is none is found below
	}
	procs := readProcesses()
	mayAsk := r.kernel(cfg.Datapath, datapath.Examine(cfg.Datapath))
	r.realtime("/")
	devices := r.devices(cfg.Devices)
	r.paths(devices)
	if mayAsk {
		r.foreign(cfg.Datapath, devices, procs)
	}
	r.ports(cfg.Addresses, procs)
	r.rules(r.kubeProxy(ctx, procs))
	r.meshes(procs)
	r.conntrack("/proc/sys/net/netfilter")
	if cfg.Keys != nil {
		if err := cfg.Keys(); err != nil {
			found, _, _ := strings.Cut(err.Error(), "; ")
			r.add(hashKeyMissing, "%s", found)
		}
	}
	r.source(ctx, cfg)
	return *r
}

// kernel says what the kernel has, and whether it can be asked about programs.
func (r *Report) kernel(cfg datapath.Config, s datapath.Support) bool {
	r.unless(s.Kernel, "kernel", "Linux "+s.Release, kernelOld)
	r.unless(s.Privileges, "privileges", "may load and attach programs", privilegesMissing)
	r.unless(s.Namespaces, "namespaces", "those of pods can be found", namespacesHidden)
	if s.Cgroup == "" {
		r.add(cgroupMissing, "%s", cgroup.ErrNone)
	} else {
		r.unless(s.CgroupType, "cgroup", s.Cgroup, cgroupMissing)
	}
	if s.Privileges != nil || s.Kernel != nil {
		return false
	}
	r.unless(s.FileSystem, "bpf", cfg.Root+" is in a BPF file system, or can be", bpfMissing)
	r.unless(s.Programs, "programs", "the kernel loads them", programsRefused)
	r.substitutes(cfg, s)
	return s.CgroupType == nil
}

// substitutes says where the kernel has something better than what is used.
func (r *Report) substitutes(cfg datapath.Config, s datapath.Support) {
	devices := "attached to devices by tcx"
	if cfg.Filters {
		devices = "attached to devices by filters (clsact), as --filters says"
	}
	for _, each := range []struct {
		check, what, best, instead string
		kind
	}{
		{"devices-programs", "programs are", devices, s.Devices, devicesByFilters},
		{"failures", "failed connections are", datapath.NotedByTracepoints, s.Failures, failuresBySockOps},
		{"sockets", "sockets are", datapath.ToldByBPF, s.Sockets, socketsByDiag},
	} {
		if each.instead != "" {
			r.add(each.kind, "%s %s", each.what, each.instead)
		} else {
			r.ok(each.check, "%s %s", each.what, each.best)
		}
	}
}

// unless adds an error as a finding of a kind, or what is in order.
func (r *Report) unless(err error, check, found string, k kind) {
	if err != nil {
		r.add(k, "%s", err)
		return
	}
	r.ok(check, "%s", found)
}

// devices says on which devices packets would be balanced, and returns them.
func (r *Report) devices(patterns []string) []netdev.Device {
	all, err := netdev.Devices(netdev.Patterns{Devices: patterns})
	if err != nil {
		r.add(notKnown, "%s", err)
		return nil
	}
	all = all[1:] // without the node itself
	var names []string
	chosen := map[int]bool{}
	for _, d := range all {
		names = append(names, d.Name)
		chosen[d.Index] = true
	}
	r.notChosen(chosen, len(patterns) > 0)
	if len(names) == 0 {
		r.add(noDevices, "no device is chosen, so packets from outside the node are not balanced")
		return nil
	}
	more := ", and at devices that lead to backends on other nodes"
	if len(patterns) > 0 {
		more = ""
	}
	r.ok("devices", "packets are balanced at %s%s", strings.Join(names, ", "), more)
	return all
}

// notChosen says on which devices others may reach the node, and packets would not be balanced.
func (r *Report) notChosen(chosen map[int]bool, named bool) {
	all, err := netdev.NotChosen(chosen)
	if err != nil {
		r.add(notKnown, "%s", err)
	}
	why := "is not chosen, unless it has the InternalIP of the Node or leads to backends on other nodes"
	if named {
		why = "is not among --devices"
	}
	for _, d := range all {
		r.add(deviceNotChosen, "%s %s", d, why)
	}
}
