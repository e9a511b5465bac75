package main

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
)

// drivers are the programs at the peers of a node's devices, whose drivers send frames:
// otherwise these would take none.
type drivers struct {
	objects framesObjects
	links   map[string]link.Link // by machine
}

func newDrivers(p *forwardPath) (*drivers, error) {
	d := &drivers{links: map[string]link.Link{}}
	if err := loadFramesObjects(&d.objects, nil); err != nil {
		return nil, fmt.Errorf("load the programs that let frames in: %w", err)
	}
	for _, machine := range []string{theClient, theServer, theSender} {
		err := p.topology.Namespace(machine).Do(func() error {
			l, err := netlink.LinkByName(toNode)
			if err != nil {
				return err
			}
			d.links[machine], err = link.AttachXDP(link.XDPOptions{Program: d.objects.LetIn, Interface: l.Attrs().Index, Flags: link.XDPDriverMode})
			return err
		})
		if err != nil {
			return nil, errors.Join(fmt.Errorf("attach to the driver of %s of %s: %w", toNode, machine, err), d.close())
		}
	}
	return d, nil
}

// end says whether frames end in the driver of the server's device.
func (d *drivers) end(there bool) error {
	if d == nil {
		return nil
	}
	program := map[bool]*ebpf.Program{false: d.objects.LetIn, true: d.objects.DriverSink}[there]
	return d.links[theServer].Update(program)
}

func (d *drivers) close() error {
	var errs []error
	for _, l := range d.links {
		if l != nil {
			errs = append(errs, l.Close())
		}
	}
	return errors.Join(append(errs, d.objects.Close())...)
}
