package agent

import (
	"fmt"
	"maps"
	"slices"

	"go.uber.org/zap"

	"github.com/headgate/headgate/pkg/datapath"
	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/maglev"
	"github.com/headgate/headgate/pkg/netdev"
	"github.com/headgate/headgate/pkg/plan"
)

// initialize brings maps and programs into force on the node, as they are or
// empty, and ends: what needs privileges is done then, and an agent with fewer
// goes on from there. Sources are not asked, so devices of pods are left to it.
func initialize(cfg Config, key maglev.Key, log *zap.Logger) error {
	followed, err := datapath.LastAlive(cfg.Datapath.Root)
	if err != nil {
		return err
	}
	dp, err := openDatapath(cfg, key, log, nobody{})
	if err != nil {
		return err
	}
	defer dp.Close()
	if !followed.IsZero() { // nobody has followed changes since, though what is replaced touches the directory
		defer func() { _ = datapath.MarkAlive(cfg.Datapath.Root, followed) }() // it is there: it was opened
	}
	if err := dp.Attach(); err != nil {
		return fmt.Errorf("attach: %w", err)
	}
	// The agent knows what the cluster says of devices: until then those of the agent before stay as they are.
	uplinks, err := dp.Uplinks()
	if err != nil {
		return err
	}
	list, err := netdev.Devices(cfg.patterns(), slices.Sorted(maps.Keys(uplinks))...)
	if err != nil {
		return err
	}
	for i := range list {
		list[i].Shared = uplinks[list[i].Index]
	}
	attach := func(devices []plan.Device) { err = dp.SetDevices(devices) }
	newDeviceList(cfg, log, attach, func([]lb.Problem) {}).setDevices(netdev.Seen{Devices: list})
	if err != nil {
		// The agent says so again, and tries again where that helps.
		log.Warn("attach to devices", zap.Error(err))
	}
	log.Info("initialized: an agent may take over")
	return nil
}
