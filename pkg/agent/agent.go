// Package agent wires the parts together: it is the only one that knows them
// all.
package agent

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/headgate/headgate/pkg/datapath"
	"github.com/headgate/headgate/pkg/netdev"
	"github.com/headgate/headgate/pkg/plan"
	"github.com/headgate/headgate/pkg/reconciler"
	"github.com/headgate/headgate/pkg/source/manifest"
)

// Config is what an agent is told.
type Config struct {
	Manifests string // directory of Kubernetes YAML
	NodeName  string
	Cgroup    string // cgroup2 directory; "" is the root of the file system
	BPFRoot   string // directory in a BPF file system
	Version   string // of headgate
	// NodePortLoopback lets NodePorts answer on 127.0.0.1 and ::1.
	NodePortLoopback bool
	// Devices are patterns of names of the devices on which others reach the
	// node; none chooses those with a default route, and tunnels.
	Devices  []string
	Promises uint32     // sockets in the promises map, a power of two
	Limits   plan.Sizes // entries that maps grow to at most, 0 is no limit
}

// Validate returns an error that names the first field that makes no sense.
func (c Config) Validate() error {
	switch {
	case c.Manifests == "":
		return errors.New("no source of Services: name a directory of YAML with --manifests")
	case c.NodeName == "":
		return errors.New("no node name: say which Node this is with --node-name")
	case c.Promises == 0 || c.Promises&(c.Promises-1) != 0:
		return fmt.Errorf("--promises %d: not a power of two", c.Promises)
	}
	return nil
}

// Run is an agent until the context ends. What it has brought into the kernel
// stays there.
func Run(ctx context.Context, cfg Config, log *zap.Logger) error {
	if cfg.Cgroup == "" {
		root, err := datapath.CgroupRoot()
		if err != nil {
			return err
		}
		cfg.Cgroup = root
	}
	dp, err := datapath.Open(datapath.Config{
		Root: cfg.BPFRoot, Cgroup: cfg.Cgroup, Node: cfg.NodeName, Version: cfg.Version,
		Sizes: datapath.DefaultSizes, Promises: cfg.Promises,
	})
	if err != nil {
		return err
	}
	defer dp.Close()
	log.Info("datapath open", zap.String("cgroup", cfg.Cgroup), zap.String("bpf-root", cfg.BPFRoot), zap.Uint64("writes", dp.Writes()))
	r, err := reconciler.New(log, dp, cfg.Limits)
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { r.Run(ctx); return nil })
	group.Go(func() error { return manifest.New(cfg.Manifests, cfg.NodeName).Run(ctx, r.Update) })
	group.Go(func() error {
		return netdev.WatchAddresses(ctx, func(a map[netip.Addr]bool) { r.SetNodeAddresses(addressKinds(a, cfg.NodePortLoopback)) })
	})
	group.Go(func() error {
		return netdev.WatchDevices(ctx, cfg.Devices, func(list []netdev.Device) { r.SetDevices(devices(list)) })
	})
	if err := group.Wait(); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// addressKinds says on which addresses NodePorts answer.
func addressKinds(node map[netip.Addr]bool, loopback bool) map[netip.Addr]plan.AddressKind {
	out := map[netip.Addr]plan.AddressKind{}
	for a := range node {
		out[a] = plan.NodeAddress
	}
	if loopback {
		out[netip.AddrFrom4([4]byte{127, 0, 0, 1})] = plan.LoopbackAddress
		out[netip.IPv6Loopback()] = plan.LoopbackAddress
	}
	return out
}

// devices are devices as the datapath takes them.
func devices(list []netdev.Device) []plan.Device {
	out := []plan.Device{}
	for _, d := range list {
		out = append(out, plan.Device{Index: uint32(d.Index), Name: d.Name, IP4: d.IP4, IP6: d.IP6})
	}
	return out
}
