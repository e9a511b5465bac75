package main

import (
	"fmt"
)

// compareRuns compares the run time of the programs of two objects by the
// kernel's own count.
func (b *bench) compareRuns(object []byte) error {
	w := &wiring{b: b}
	defer func() { w.close() }()
	for _, c := range []struct {
		services, backends int
	}{{1, 10}, {1, 1000}, {b.most(), 10}} {
		other, err := b.productOf("against", object, udp4, c.services, c.backends)
		w.check(err)
		own, err := b.product(udp4, c.services, c.backends)
		w.check(err)
		w.both(fmt.Sprintf("%s Services, %s backends", count(c.services), count(c.backends)), other, own, c.services)
	}
	if w.err != nil {
		return w.err
	}
	if err := b.countAllRuns(w.runners); err != nil {
		return err
	}
	t := table{
		Title:  "Programs of the object built in beside " + b.against + ", ns per run by the kernel's statistics",
		Header: []string{"program", "other", "built in", "saved", "quartiles"},
	}
	for i := 0; i+1 < len(w.runners); i += 2 {
		other, own := w.runners[i], w.runners[i+1]
		saved := added(other.ns, own.ns)
		t.row(other.name, ns(summary(other.ns)), ns(summary(own.ns)), ns(saved), spread(saved))
	}
	b.report.table(t)
	return nil
}

// both adds each program of two groups, one after the other.
func (w *wiring) both(name string, other, own *group, services int) {
	groups := []*group{other, own}
	for _, g := range groups {
		w.connects("connect4, "+name, "", "connect4", g, serviceNet4, services)
	}
	for _, g := range groups {
		w.connects("connect4, no Service address, "+name, "", "connect4", g, foreignNet4, services)
	}
	for _, g := range groups {
		w.releases("sock_release, "+name, "", g)
	}
	if services > 1 {
		return
	}
	for _, program := range []string{"sendmsg4", "recvmsg4"} {
		for _, g := range groups {
			w.exchanges(program, g, serviceNet4)
		}
	}
}

// comparePackets compares what a packet costs at a device with two objects.
func (b *bench) comparePackets(object []byte) error {
	leave, err := stayOnOneCPU()
	if err != nil {
		return err
	}
	defer leave()
	other, closeOther, err := b.packetCases("-against", object)
	defer closeOther()
	if err != nil {
		return err
	}
	own, closeOwn, err := b.packetCases("", nil)
	defer closeOwn()
	if err != nil {
		return err
	}
	return b.compareCases(other, own)
}

// compareCarried compares what a packet costs that is carried, at TC.
func (b *bench) compareCarried(object []byte) error {
	leave, err := stayOnOneCPU()
	if err != nil {
		return err
	}
	defer leave()
	other, own := &carryCases{name: "-against", object: object}, &carryCases{}
	defer other.close()
	defer own.close()
	if err := other.addAll(b); err != nil {
		return err
	}
	if err := own.addAll(b); err != nil {
		return err
	}
	return b.compareCases(other.all, own.all)
}

// compareCases compares the same packets with two objects, in turn.
func (b *bench) compareCases(other, own []*packetCase) error {
	for range b.plan.rounds {
		for i := range own {
			for _, c := range []*packetCase{other[i], own[i]} {
				if err := c.round(b.plan.packets); err != nil {
					return fmt.Errorf("%s: %w", c.name, err)
				}
			}
		}
	}
	t := table{
		Title:  "A packet at a device, with the object built in beside " + b.against + ", ns without what the replay costs",
		Header: []string{"packet", "flows", "other", "built in", "saved", "quartiles"},
	}
	for i, is := range own {
		was := other[i]
		if is.base == nil {
			continue
		}
		saved := added(was.ns, is.ns)
		t.row(is.name, count(is.flows), ns(added(was.ns, was.base.ns)), ns(added(is.ns, is.base.ns)), ns(saved), spread(saved))
	}
	b.report.table(t)
	return nil
}
