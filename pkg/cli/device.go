package cli

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/pkg/datapath"
	"github.com/headgate/headgate/pkg/plan"
)

// device is a network device with programs, as it is shown.
type device struct {
	datapath.Device
	NoXDP string `json:"noXDP,omitempty"` // why its driver repeats nothing, though it should
}

func (d device) names() []string { return []string{d.Name} }

func (device) owners() []plan.Service { return nil }

var devices = noun[device]{
	name: "device", kind: "Device", short: "network devices with programs of Headgate", words: "DEVICE",
	columns: []column[device]{
		{title: "DEVICE", of: func(d device) any { return d.Name }},
		{title: "INDEX", of: func(d device) any { return d.Index }},
		{title: "OF", of: func(d device) any { return d.of() }},
		{title: "PROGRAMS", of: func(d device) any { return d.programs() }},
		{title: "DRIVER", of: func(d device) any { return d.driver() }},
	},
	read: readDevices,
}

func newDevice(e *env) *cobra.Command { return devices.command(e) }

func readDevices(s *sight, do func(*device) error) error {
	status, err := s.Status()
	if err != nil {
		return err
	}
	report, err := s.env.readReport()
	for _, d := range status.Devices {
		if err == nil {
			err = do(&device{d, report.XDP[d.Name]})
		}
	}
	return err
}

// driver says whether the driver repeats, and why not where it should.
func (d device) driver() string {
	for _, h := range d.Hooks {
		if h.By == datapath.NativeXDP {
			return h.By
		}
	}
	return d.NoXDP
}

// of says who reaches the node on the device.
func (d device) of() string {
	if d.Pod {
		return "a pod"
	}
	return "the node"
}

// programs returns the programs by how they are attached: "device_in, device_out by tcx".
func (d device) programs() string {
	var all []string
	by := map[string][]string{}
	for _, h := range d.Hooks {
		how := "by " + h.By
		if !h.Attached {
			how = "NOT ATTACHED"
		}
		if by[how] == nil {
			all = append(all, how)
		}
		by[how] = append(by[how], h.Name)
	}
	for i, how := range all {
		all[i] = strings.Join(by[how], ", ") + " " + how
	}
	return strings.Join(all, "; ")
}
