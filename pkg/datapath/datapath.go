// Package datapath is the border to the kernel, and the only one that knows
// BPF: it loads the object, fills the maps, attaches and pins the programs,
// goes on from what an earlier process has pinned, and replaces maps that must
// grow and objects that were built otherwise while traffic goes on.
//
// Below the directory Config.Root, in a BPF file system, stand
//
//	maps/NAME   the maps in use
//	links/NAME  the programs, attached to a cgroup; NAME_ID while a replacement
//	            is on its way, those that it will put out of force at its end
//	next/NAME   the maps of a replacement on its way, or of one that died;
//	            next_1 to next_3 of those that died before it
//	first/NAME  the maps and programs of a first start on its way, or of one that died
package datapath

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/cilium/ebpf"

	"github.com/headgate/headgate/pkg/plan"
)

// DefaultRoot is where maps and links are pinned unless told otherwise.
const DefaultRoot = "/sys/fs/bpf/headgate"

// Config says what to load and where to put it.
type Config struct {
	Root    string // directory in a BPF file system, made if missing
	Cgroup  string // cgroup2 directory whose sockets are balanced, or one with it as unified
	Node    string // name of the node, for people
	Version string // of headgate, for people
	// Object is the compiled object; nil is the one built in.
	Object []byte `json:"-"`
	// Sizes is the room that new maps have at least; they grow on demand.
	Sizes plan.Sizes
	// SocketEntries is how many slots for socket NAT entries the map socket_nat has:
	// a power of two. Other sockets have theirs in socket storage.
	SocketEntries uint32
	// Affinities is how many clients of Services with session affinity are
	// remembered; the least recently used make room.
	Affinities uint32
	// Flows is how many directions of flows there is room for: a flow to a backend on
	// this node has two, to another one four. 0 is one for each 64 KiB of the machine's
	// memory: the nearest power of two, at least 65,536 and at most 4,194,304.
	Flows uint32
	// TCPTimeout is how long a connection whose packets are balanced, and that nobody has closed,
	// may be silent: two hours and four minutes at least, 0 for a day.
	TCPTimeout time.Duration
	// Diag has sockets destroyed through INET_DIAG, as it is where the kernel has
	// no bpf_sock_destroy.
	Diag bool
	// ReportSockets is called with how sockets of lost backends are destroyed, at first
	// and whenever that changes. May be nil.
	ReportSockets func(how string) `json:"-"`
	// Pods says that there may be pods whose sockets are left alone.
	Pods bool `bpf:"pod_devices"`
	// Traffic counts bytes, packets, failures and connect times.
	Traffic bool `bpf:"count_traffic"`
	// Redirect lets packets to other nodes leave past the stack.
	Redirect bool `bpf:"redirect_flows"`
	// XDP lets drivers of devices repeat what was done to packets of a flow to another
	// node; it implies Redirect.
	XDP bool
	// ReportXDP is called with the devices whose driver is to do so and does not, by
	// name, and why: at first and whenever that changes. May be nil.
	ReportXDP func(why map[string]string) `json:"-"`
	// SockOps has sock_ops tell of connections that fail, as it does where the kernel
	// refuses programs at tracepoints.
	SockOps bool
	// Filters attaches to devices as on kernels without tcx.
	Filters bool
	// EjectAfter is how many connections in a row a backend does not take before
	// it is ejected; 0: none ever is.
	EjectAfter uint32 `bpf:"eject_after"`
	// MaxEjected is how many of the slots of a table are avoided at most, in per
	// cent.
	MaxEjected uint32 `bpf:"max_ejected_percent"`
	// Carrying says that there may be Services whose packets are carried to the homes
	// of their backends.
	Carrying bool `bpf:"carrying"`
	// CarryPort is the UDP port of carried packets and of echoes.
	CarryPort uint16 `bpf:"carry_port"`
	// OutsideUDP puts UDP into outer headers to backends outside, too. Else they are IP in IP.
	OutsideUDP bool `bpf:"outside_udp"`
	// CarryKeys are the keys of proofs (bpf/carry/proof.h). The node proves by the first one, and
	// accepts both.
	CarryKeys [2][2]uint64 `bpf:"carry_keys" json:"-"`
	// CarryAlike is equal on nodes that carry alike.
	CarryAlike uint64 `bpf:"carry_alike" json:"-"`
	// HashKey is the key of the hashes of flows and clients, the same on all
	// nodes with --hash-key-file.
	HashKey [2]uint64 `bpf:"hash_key" json:"-"`
	// SNATPorts are the source ports of flows to backends on other nodes; none for
	// DefaultSNATPorts.
	SNATPorts Ports
}

// DefaultSizes is the room that maps start with: 1 MiB of slots, since the table of a large Service is
// written anew with each of its changes, and the former one waits for a grace period.
var DefaultSizes = plan.Sizes{Frontends: 1024, Slots: 1 << 18, Backends: 4096, Services: 1024, Addresses: 1024}

// Sizes of the maps that do not grow: 4 MiB of socket NAT entries, 8 MiB of affinities.
const (
	DefaultSocketEntries = 1 << 16
	DefaultAffinities    = 1 << 16
)

// Datapath is the kernel's side of Headgate. Apart from Grace, DestroySockets, Recount, Prepare, Load and
// Reader it is not safe for concurrent use.
type Datapath struct {
	cfg      Config
	object   *object // of this process, with its knobs
	locks    []*os.File
	maps     *mapSet // in force once attached
	held     held    // what was in force after the last Attach and SetDevices
	stale    stale
	standing standing
	teller   teller
	census   census
	growth   growth
	pins     pinsSeen
	devices  []plan.Device
	noXDP    map[string]string // as reported; nil: not yet
	mute     map[uint32]bool   // devices whose driver took the program, and sends no frames
	// old are the maps of programs that are in force until Attach, fresh that nobody has left any.
	old   []*mapSet
	fresh bool
	kept  *mapSet // is pinned in first, nil for nothing
	// flowsOf are those of old whose flows come along.
	flowsOf []*mapSet

	mu      sync.Mutex // guards inForce and held against readers
	inForce *mapSet    // what programs in force work on, nil for nothing that can be read
}

// Open takes the node for this process. If what is pinned is as it should be,
// it is adopted. Otherwise maps are made beside it with all that the pinned ones
// hold. Programs are loaded and come into force with Attach, once it is known how
// large maps have to be, or with Apply where these share maps with what is in force;
// until then that works on.
//
// It returns ErrBusy if another agent has the node, and otherwise an error that
// says what the machine lacks.
func Open(cfg Config) (*Datapath, error) {
	if cfg.SocketEntries == 0 || cfg.SocketEntries&(cfg.SocketEntries-1) != 0 {
		return nil, fmt.Errorf("%d socket NAT entries: not a power of two", cfg.SocketEntries)
	}
	if cfg.Flows == 0 {
		cfg.Flows = flowsFor(memoryOfMachine())
	}
	if cfg.Affinities == 0 {
		cfg.Affinities = DefaultAffinities
	}
	if cfg.SNATPorts == (Ports{}) {
		cfg.SNATPorts = DefaultSNATPorts
	}
	cfg.Cgroup = unified(cfg.Cgroup)
	cfg.Redirect = cfg.Redirect || cfg.XDP
	d := &Datapath{cfg: cfg}
	if err := d.open(); err != nil {
		d.Close()
		return nil, err
	}
	return d, nil
}

func (d *Datapath) open() error {
	if err := d.take(); err != nil {
		return err
	}
	var err error
	if d.object, err = newObject(d.cfg); err != nil {
		return err
	}
	pinned, err := openMaps(d.path("maps"), d.object.spec.Maps, true)
	if err != nil {
		return err
	}
	if pinned != nil && pinned.about != nil {
		d.publish(pinned)
	}
	if pinned.matches(d.object) && linksUse(d.path("links"), d.cfg.Cgroup, d.object.traced, pinned) {
		d.maps = pinned
		if err := d.maps.settleFrontends(); err != nil {
			return err
		}
		return errors.Join(d.tidy(), d.freeAbandonedFlows())
	}
	if pinned == nil {
		if d.maps, err = d.openFirst(); err != nil {
			return err
		}
	}
	if d.maps != nil {
		d.fresh, d.kept = true, d.maps
		return d.maps.settleFrontends()
	}
	unfinished := d.openUnfinished()
	d.fresh = pinned == nil && len(unfinished) == 0
	d.old = append([]*mapSet{pinned}, unfinished...)
	d.flowsOf = d.old
	return d.remake(pinned.sizes().AtLeast(d.cfg.Sizes), pinned)
}

// isAttached says whether the programs in force work on the maps of this process.
func (d *Datapath) isAttached() bool { return d.inForce == d.maps }

func (d *Datapath) takeAllEntries() error {
	for _, from := range d.old {
		if err := d.takeEntries(from); err != nil {
			return fmt.Errorf("take along socket NAT entries: %w", err)
		}
	}
	return nil
}

// take locks the cgroup, makes the directory and locks that, until Close.
func (d *Datapath) take() error {
	if err := CheckMachine(d.cfg); err != nil {
		return err
	}
	if err := d.lock(d.cfg.Cgroup); err != nil { // first: who is refused makes nothing
		return err
	}
	if err := d.makeRoot(); err != nil {
		return err
	}
	return d.lock(d.cfg.Root)
}

func (d *Datapath) lock(dir string) error {
	f, err := lockPatiently(dir)
	if err != nil {
		return err
	}
	d.locks = append(d.locks, f)
	return nil
}

// tidy says that the maps are in their place, removes what a process left that died
// during a replacement or a replay, and holds what is in force.
func (d *Datapath) tidy() error {
	sweepReplays(d.cfg.Cgroup)
	d.maps.about.describe(d.cfg)
	d.maps.about.at(0).FlowsMigrated = 1 // from now on an unknown connection is reset
	if err := d.maps.endHandOver(); err != nil {
		return err
	}
	if err := detachAll(d.path("links"), d.object.isOurs); err != nil {
		return err
	}
	for _, dir := range append(unfinished(d.cfg.Root), d.path("first")) {
		if err := os.RemoveAll(dir); err != nil {
			return err
		}
	}
	return d.hold()
}

// Attach loads the programs and puts them in force, each in one step in place of the one
// that was, and pins them and the maps. It does nothing where they are already. The error is
// errors.ErrUnsupported where the kernel refuses them; then nothing has changed. Where programs
// were replaced, each of both counted connections in their own maps: Recount corrects that.
func (d *Datapath) Attach() error {
	if d.isAttached() {
		return nil
	}
	if _, err := d.repinLinks(); err != nil { // else what lost its pin would be attached twice
		return err
	}
	programs, err := d.programsToAttach()
	if err != nil {
		return err
	}
	defer programs.Close()
	if err := d.attachPrograms(programs); err != nil {
		return err
	}
	if err := swapDirs(d.path("next"), d.path("maps")); err != nil {
		return err
	}
	d.publish(d.maps)
	shared := d.sharesState()
	d.forgetOld()
	if err := d.tidy(); err != nil || shared {
		return err
	}
	return d.freeAbandonedFlows()
}

// attachPrograms takes the socket NAT entries along from map to map. All the while
// programs that read entries, and delete those of closed sockets, are in force for the
// old maps as well: no socket sees a backend, and no entry of a closed socket comes
// along.
func (d *Datapath) attachPrograms(programs programSet) error {
	if err := programs.attachKeepers(d.path("links"), d.cfg.Cgroup); err != nil {
		return err
	}
	if err := d.takeAllEntries(); err != nil {
		return err
	}
	if err := errors.Join(d.replaceMakers(programs), d.takeAffinities(ebpf.UpdateNoExist)); err != nil {
		return err
	}
	return d.takeAllEntries()
}

// forgetOld lets go of maps that no program in force works on.
func (d *Datapath) forgetOld() {
	for _, m := range d.old {
		m.Close()
	}
	d.old, d.flowsOf, d.fresh, d.kept = nil, nil, false, nil
}

// Content returns what the maps hold.
func (d *Datapath) Content() (plan.Content, error) { return d.maps.content() }

// Close lets go of the node. Pinned programs go on working without it.
func (d *Datapath) Close() {
	d.stale.Close()
	d.standing.Close()
	d.census.payload.Close()
	d.teller.Close()
	d.growth.drop()
	d.maps.Close()
	d.forgetOld()
	d.publish(nil)
	d.setHeld(held{})
	for _, f := range d.locks {
		f.Close()
	}
}

func (d *Datapath) path(name string) string { return filepath.Join(d.cfg.Root, name) }
