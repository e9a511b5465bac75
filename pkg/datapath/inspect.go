package datapath

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"

	"github.com/headgate/headgate/pkg/plan"
)

// ErrNotLoaded says that nothing is pinned where it was looked for.
var ErrNotLoaded = errors.New("headgate is not loaded")

// Inspector reads what is pinned, whether or not an agent runs.
type Inspector struct {
	root   string
	object *object
	maps   *mapSet
}

// Status is what is said of a loaded datapath as a whole.
type Status struct {
	Version  string            `json:"version"` // of the agent that loaded it or adopted it last
	Node     string            `json:"node"`
	Cgroup   string            `json:"cgroup"`
	Object   string            `json:"object"` // SHA-256 of object and knobs, in hex
	Agent    bool              `json:"agent"`  // an agent runs
	Writes   uint64            `json:"writes"` // by agents to the maps
	Hooks    []Hook            `json:"hooks"`
	Counters map[string]uint64 `json:"counters"`
	Drops    map[string]uint64 `json:"drops"` // by drop reason
}

// Hook is a program with whether it is in force.
type Hook struct {
	Name     string `json:"name"`
	Attached bool   `json:"attached"`
}

// MapInfo is a map with how full it is.
type MapInfo struct {
	Name       string `json:"name"`
	Type       string `json:"type"`
	KeyBytes   uint32 `json:"key_bytes"`
	ValueBytes uint32 `json:"value_bytes"`
	Entries    uint32 `json:"entries"` // in use; 0 where that is not counted
	MaxEntries uint32 `json:"max_entries"`
	Bytes      uint64 `json:"bytes"` // of kernel memory
}

// Inspect opens what is pinned below root for reading. It returns ErrNotLoaded
// if there is nothing.
func Inspect(root string) (*Inspector, error) {
	spec, err := loadHeadgate()
	if err != nil {
		return nil, err
	}
	o := &object{spec: spec}
	maps, err := openMaps(filepath.Join(root, "maps"), o)
	if err != nil {
		return nil, err
	}
	if maps == nil {
		return nil, fmt.Errorf("%w: nothing is pinned below %s; start headgate agent, or name another --bpf-root", ErrNotLoaded, root)
	}
	if maps.about == nil {
		maps.Close()
		return nil, fmt.Errorf("the maps below %s were made by another version: use the headgate that made them", root)
	}
	return &Inspector{root: root, object: o, maps: maps}, nil
}

// Close lets go of the maps.
func (i *Inspector) Close() { i.maps.Close() }

// Content returns what the maps hold. If it contradicts itself they may have been
// replaced by larger ones meanwhile; then it is what those hold that are pinned now.
func (i *Inspector) Content() (plan.Content, error) {
	content, err := i.maps.content()
	if err == nil {
		return content, nil
	}
	now, errNow := openMaps(filepath.Join(i.root, "maps"), i.object)
	if errNow != nil || now == nil || now.about == nil {
		now.Close()
		return content, err
	}
	i.maps.Close()
	i.maps = now
	return i.maps.content()
}

// Status returns what is said of the datapath as a whole.
func (i *Inspector) Status() (Status, error) {
	about := i.maps.about.at(0)
	s := Status{
		Version: decodeString(about.Version[:]),
		Node:    decodeString(about.Node[:]),
		Cgroup:  decodeString(about.Cgroup[:]),
		Object:  hex.EncodeToString(about.Object[:]),
		Agent:   isLocked(i.root),
		Writes:  about.Writes,
	}
	for _, h := range hooks {
		l, err := link.LoadPinnedLink(filepath.Join(i.root, "links", h.program), nil)
		attached := err == nil && isAttachedTo(l, s.Cgroup)
		if err == nil {
			l.Close()
		}
		s.Hooks = append(s.Hooks, Hook{Name: h.program, Attached: attached})
	}
	return s, i.readCounters(&s)
}

// isLocked says whether an agent holds the directory.
func isLocked(root string) bool {
	f, err := lock(root)
	if err == nil {
		f.Close()
	}
	return errors.Is(err, ErrBusy)
}

// readCounters sums the counters of all CPUs.
func (i *Inspector) readCounters(s *Status) error {
	var zero uint32
	var perCPU []headgateCounters
	if err := i.maps.byName["counters"].Lookup(&zero, &perCPU); err != nil {
		return fmt.Errorf("read the counters: %w", err)
	}
	reasons, err := i.dropReasons()
	if err != nil {
		return err
	}
	s.Counters, s.Drops = map[string]uint64{}, map[string]uint64{}
	for _, c := range perCPU {
		for name, n := range map[string]uint64{
			"connect": c.Connect, "sendmsg": c.Sendmsg, "recvmsg": c.Recvmsg, "getpeername": c.Getpeername,
			"promise_stored": c.PromiseStored, "promise_replaced": c.PromiseReplaced, "promise_lost": c.PromiseLost,
			"flow_made": c.FlowMade, "flow_packet": c.FlowPacket, "flow_error": c.FlowError, "flow_redirected": c.FlowRedirected,
			"flow_established": c.FlowEstablished, "flow_expired": c.FlowExpired, "flow_restored": c.FlowRestored,
			"flow_broken": c.FlowBroken, "flow_reset": c.FlowReset, "reset_limited": c.ResetLimited,
			"backend_failed": c.BackendFailed, "backend_suspected": c.BackendSuspected, "backend_recovered": c.BackendRecovered,
			"backend_trial": c.BackendTrial, "choice_avoided": c.ChoiceAvoided, "choice_widened": c.ChoiceWidened,
			"fragment_held": c.FragmentHeld, "fragment_released": c.FragmentReleased,
			"affinity": c.Affinity, "socket_destroyed": c.SocketDestroyed,
		} {
			s.Counters[name] += n
		}
		for r, name := range reasons {
			s.Drops[name] += c.Drops[r]
		}
	}
	return nil
}

// dropReasons returns the names of drop reasons, as the object itself has them:
// DROP_NO_ENDPOINT is "no_endpoint".
func (i *Inspector) dropReasons() ([]string, error) {
	var enum *btf.Enum
	if err := i.object.spec.Types.TypeByName("drop_reason", &enum); err != nil {
		return nil, fmt.Errorf("drop reasons: %w", err)
	}
	var names []string
	for _, v := range enum.Values {
		if name, ok := strings.CutPrefix(v.Name, "DROP_"); ok && v.Name != "DROP_REASONS" {
			names = append(names, strings.ToLower(name))
		}
	}
	return names, nil
}

// Drops returns, by Service ID, what was refused for which reason. Services of
// which nothing was refused are left out.
func (i *Inspector) Drops() (map[uint32]map[string]uint64, error) {
	reasons, err := i.dropReasons()
	if err != nil {
		return nil, err
	}
	out := map[uint32]map[string]uint64{}
	for id := uint32(1); id < i.maps.services.len; id++ {
		for r, name := range reasons {
			n := i.maps.services.at(id).Drops[r]
			if n == 0 {
				continue
			}
			if out[id] == nil {
				out[id] = map[string]uint64{}
			}
			out[id][name] = n
		}
	}
	return out, nil
}

// Maps returns every map, sorted by name.
func (i *Inspector) Maps() ([]MapInfo, error) {
	content, err := i.Content()
	if err != nil {
		return nil, err
	}
	var out []MapInfo
	for name, m := range i.maps.byName {
		info, err := m.Info()
		if err != nil {
			return nil, fmt.Errorf("map %s: %w", name, err)
		}
		bytes, _ := info.Memlock()
		out = append(out, MapInfo{
			Name: name, Type: m.Type().String(), KeyBytes: m.KeySize(), ValueBytes: m.ValueSize(),
			Entries: i.used(name, content), MaxEntries: m.MaxEntries(), Bytes: bytes,
		})
	}
	slices.SortFunc(out, func(a, b MapInfo) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

// used counts the entries of a map that are in use.
func (i *Inspector) used(name string, c plan.Content) uint32 {
	switch name {
	case "frontend_ids", "frontends":
		return uint32(len(c.Frontends))
	case "backends":
		return uint32(len(c.Backends))
	case "services":
		return uint32(len(c.Services))
	case "addresses":
		return uint32(len(c.Addresses))
	case "slots":
		var slots uint32
		for t := range c.Tables {
			slots += t.Size
		}
		return (slots + slotsPerChunk - 1) / slotsPerChunk
	case "promises":
		return countPromises(i.maps.byName[name])
	default:
		return 0
	}
}

func countPromises(m *ebpf.Map) (n uint32) {
	slots, err := newMapping[headgatePromiseSlot](m, false)
	if err != nil {
		return 0
	}
	defer slots.Close()
	for i := range slots.len {
		if slots.at(i).Owner != 0 {
			n++
		}
	}
	return n
}

// Cleanup takes everything below root out of force and removes it. It returns
// ErrBusy while an agent runs.
func Cleanup(root string) error {
	if !exists(root) {
		return nil
	}
	if err := checkRoot(root); err != nil {
		return err
	}
	f, err := lock(root)
	if err != nil {
		return err
	}
	defer f.Close()
	// First what sends clients to backends, so that nobody sees a backend as
	// its peer.
	for _, h := range slices.Backward(hooks) {
		if err := detach(filepath.Join(root, "links", h.program)); err != nil {
			return err
		}
	}
	if err := dropFilters(func(uint32, string) bool { return false }); err != nil {
		return err
	}
	everything := func(string) bool { return false }
	if err := detachAll(filepath.Join(root, "links"), everything); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return os.RemoveAll(root)
}
