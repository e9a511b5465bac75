package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"

	"github.com/headgate/headgate/pkg/datapath"
	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/plan"
)

// group is a cgroup with programs. They serve the sockets that are made while
// the process is in it, for as long as those live.
type group struct {
	name     string
	path     string
	root     string // where a datapath is pinned, "" without one
	programs map[string]*ebpf.Program
	closers  []func() error
}

// newGroup makes a cgroup without programs.
func (b *bench) newGroup(name string) (*group, error) {
	g := &group{name: name, path: filepath.Join(b.cgroup, name), programs: map[string]*ebpf.Program{}}
	if err := os.Mkdir(g.path, 0o755); err != nil {
		return nil, err
	}
	b.groups[name] = g
	return g, nil
}

// close takes the programs out of force and removes the cgroup, which the
// process must have left.
func (g *group) close() error {
	var errs []error
	for _, p := range g.programs {
		errs = append(errs, p.Close())
	}
	for _, c := range g.closers {
		errs = append(errs, c())
	}
	if g.root != "" {
		errs = append(errs, datapath.Cleanup(g.root))
	}
	return errors.Join(append(errs, os.Remove(g.path))...)
}

// drop closes a group that is not needed any more.
func (b *bench) drop(g *group) error {
	if err := b.leave(); err != nil {
		return err
	}
	delete(b.groups, g.name)
	return g.close()
}

// enter moves the process into a cgroup.
func (b *bench) enter(g *group) error {
	if b.entered == g {
		return nil
	}
	b.entered = g
	return join(g.path)
}

func (b *bench) leave() error {
	b.entered = nil
	return join(b.cgroup)
}

func join(cgroup string) error {
	return os.WriteFile(filepath.Join(cgroup, "cgroup.procs"), []byte(strconv.Itoa(os.Getpid())), 0)
}

// bare returns the cgroup without programs.
func (b *bench) bare() (*group, error) {
	if g := b.groups["none"]; g != nil {
		return g, nil
	}
	return b.newGroup("none")
}

// emptyHooks are where a program that does nothing stands in for Headgate.
var emptyHooks = []struct {
	program string
	kind    ebpf.ProgramType
	attach  ebpf.AttachType
}{
	{"connect4", ebpf.CGroupSockAddr, ebpf.AttachCGroupInet4Connect},
	{"connect6", ebpf.CGroupSockAddr, ebpf.AttachCGroupInet6Connect},
	{"sendmsg4", ebpf.CGroupSockAddr, ebpf.AttachCGroupUDP4Sendmsg},
	{"sendmsg6", ebpf.CGroupSockAddr, ebpf.AttachCGroupUDP6Sendmsg},
	{"recvmsg4", ebpf.CGroupSockAddr, ebpf.AttachCGroupUDP4Recvmsg},
	{"recvmsg6", ebpf.CGroupSockAddr, ebpf.AttachCGroupUDP6Recvmsg},
	{"sock_release", ebpf.CGroupSock, ebpf.AttachCgroupInetSockRelease},
}

// empty returns the cgroup with empty programs.
func (b *bench) empty() (*group, error) {
	if g := b.groups["empty"]; g != nil {
		return g, nil
	}
	g, err := b.newGroup("empty")
	if err != nil {
		return nil, err
	}
	for _, h := range emptyHooks {
		p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
			Name: "empty", Type: h.kind, AttachType: h.attach, License: "Dual BSD/GPL",
			Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 1), asm.Return()},
		})
		if err != nil {
			return nil, fmt.Errorf("load an empty program: %w", err)
		}
		if err := g.attach(h.program, h.attach, p); err != nil {
			return nil, err
		}
	}
	return g, nil
}

// attach attaches a program, which the group closes in the end.
func (g *group) attach(name string, attach ebpf.AttachType, p *ebpf.Program) error {
	g.programs[name] = p
	l, err := link.AttachCgroup(link.CgroupOptions{Path: g.path, Attach: attach, Program: p})
	if err != nil {
		return fmt.Errorf("attach %s to %s: %w", name, g.path, err)
	}
	g.closers = append(g.closers, l.Close)
	return nil
}

// product returns the cgroup with Headgate and so many Services of a flavour.
func (b *bench) product(f flavour, services, backends int) (*group, error) {
	return b.productOf("headgate", nil, f, services, backends)
}

// productOf is product with the programs of another object, nil for the one
// built in.
func (b *bench) productOf(name string, object []byte, f flavour, services, backends int) (*group, error) {
	name = fmt.Sprintf("%s-%s-%dx%d", name, f.key, services, backends)
	if g := b.groups[name]; g != nil {
		return g, nil
	}
	if err := b.step("load %s Services with %s backends each, %s", count(services), count(backends), f.name); err != nil {
		return nil, err
	}
	g, err := b.newGroup(name)
	if err != nil {
		return nil, err
	}
	g.root = filepath.Join(b.bpffs, name)
	defer runtime.GC() // the planner is large
	if err := fill(g, object, f, services, backends); err != nil {
		return nil, err
	}
	return g, g.openPinned()
}

// config is that of an agent with its defaults, but in the group.
func (g *group) config(object []byte) datapath.Config {
	return datapath.Config{
		Root: g.root, Cgroup: g.path, Node: "node-a", Version: "bench", Object: object,
		Sizes: datapath.DefaultSizes, SocketEntries: datapath.DefaultSocketEntries, Affinities: datapath.DefaultAffinities, Traffic: true,
	}
}

// fill brings Services into the kernel, without an agent.
func fill(g *group, object []byte, f flavour, services, backends int) error {
	return fillWith(g.config(object), f, services, backends)
}

func fillWith(cfg datapath.Config, f flavour, services, backends int) error {
	return bringIn(cfg, services, func(i int) []lb.Frontend { return frontends(f, i, backends) })
}

// bringIn brings Services into the kernel, of which of returns the frontends, and programs to
// devices.
func bringIn(cfg datapath.Config, services int, of func(i int) []lb.Frontend, devices ...plan.Device) error {
	d, err := datapath.Open(cfg)
	if err != nil {
		return err
	}
	defer d.Close()
	p := plan.New(plan.Sizes{})
	var ops []plan.Op
	for i := range services {
		more, err := p.Set(serviceName(i), of(i))
		if err != nil {
			return err
		}
		ops = append(ops, more...)
	}
	if err := d.Reserve(p.Needs()); err != nil {
		return err
	}
	if _, err := d.Apply(ops); err != nil {
		return err
	}
	if err := d.Attach(); err != nil || len(devices) == 0 {
		return err
	}
	return d.SetDevices(devices)
}

// openPinned opens the programs behind the pinned links.
func (g *group) openPinned() error {
	for _, h := range emptyHooks {
		l, err := link.LoadPinnedLink(filepath.Join(g.root, "links", h.program), nil)
		if err != nil {
			return err
		}
		info, err := l.Info()
		if err != nil {
			return errors.Join(err, l.Close())
		}
		p, err := ebpf.NewProgramFromID(info.Program)
		if err != nil {
			return errors.Join(err, l.Close())
		}
		g.programs[h.program] = p
		if err := l.Close(); err != nil {
			return err
		}
	}
	return nil
}
