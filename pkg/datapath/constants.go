package datapath

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// Load-time constants of the object are declared in bpf/abi/config.h, without a value. Each
// gets that of the field that is tagged with its name: a setting in Config, or one of these.

// machineConstants follow from the machine.
type machineConstants struct {
	NodeNetnsCookie uint64 `bpf:"node_netns_cookie"`
	CgroupID        uint64 `bpf:"cgroup_id"`
	IP6CsumFlag     uint64 `bpf:"ip6_csum_flag"`
	KernelReadable  bool   `bpf:"kernel_readable"`
	KernelTracks    bool   `bpf:"kernel_tracks"`
	FailuresTraced  bool   `bpf:"failures_traced"`
	TickUs          uint32 `bpf:"tick_us"`
}

// derivedConstants follow from the settings, or from constants of this package.
type derivedConstants struct {
	FrontendsMask   uint32 `bpf:"frontends_mask"`       // see object.fit
	FilterShift     uint32 `bpf:"address_filter_shift"` // the same
	SocketNatMask   uint32 `bpf:"socket_nat_mask"`
	FlowSets        uint32 `bpf:"flow_sets"`
	ExpressSets     uint32 `bpf:"express_sets"`
	RepeatsAtTC     bool   `bpf:"repeats_at_tc"`
	UDPFlowTimeoutS uint32 `bpf:"udp_flow_timeout_s"`
	NameSockets     bool   `bpf:"name_sockets"` // see teller.destroyHere
	DestroyAll      bool   `bpf:"destroy_all"`  // see mapSet.tellAll

	FrontendFactors frontendFactors `bpf:"frontend_factors"` // see object.fit
}

// udpFlowTimeout is how long datagrams may pause within a flow.
const udpFlowTimeout = 180 * time.Second

// constants returns the value of each load-time constant, by name.
func (c Config) constants() (map[string]any, error) {
	cookie, err := netnsCookie()
	if err != nil {
		return nil, err
	}
	ports, err := c.SNATPorts.constants()
	if err != nil {
		return nil, err
	}
	return tagged(c, ports,
		machineConstants{NodeNetnsCookie: cookie, CgroupID: cgroupID(c.Cgroup), IP6CsumFlag: ip6CsumFlag(), KernelReadable: !lockedDown(), KernelTracks: kernelTracks(), FailuresTraced: c.traced(), TickUs: tick()},
		derivedConstants{
			SocketNatMask: c.SocketEntries - 1, FlowSets: flowSets(c.Flows), ExpressSets: c.expressSets(), RepeatsAtTC: c.Redirect && !c.XDP,
			UDPFlowTimeoutS: uint32(udpFlowTimeout / time.Second),
		}), nil
}

// tagged returns the values of fields that have the tag "bpf", by what it says.
func tagged(structs ...any) map[string]any {
	out := map[string]any{}
	for _, s := range structs {
		v := reflect.ValueOf(s)
		for i := range v.NumField() {
			if name, ok := v.Type().Field(i).Tag.Lookup("bpf"); ok {
				out[name] = v.Field(i).Interface()
			}
		}
	}
	return out
}

// wantConstants returns an error unless an object has just the constants that have values.
func wantConstants(spec *ebpf.CollectionSpec, values map[string]any) error {
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if spec.Variables[name] == nil {
			return fmt.Errorf("load-time constant %s: a field has it as its tag, and the object lacks it", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(spec.Variables)) {
		if _, ok := values[name]; !ok && spec.Variables[name].Constant() {
			return fmt.Errorf("load-time constant %s: the object has it, and no field has it as its tag", name)
		}
	}
	return nil
}

// setConstants sets the constants of an object that have values.
func setConstants(spec *ebpf.CollectionSpec, values map[string]any) error {
	for name, v := range spec.Variables {
		value, ok := values[name]
		if !ok {
			continue
		}
		if err := v.Set(value); err != nil {
			return fmt.Errorf("set load-time constant %s: %w", name, err)
		}
	}
	return nil
}

// tick returns how long a jiffy of the kernel is, in µs: its coarse clocks go by them.
// It is the longest that there is where that cannot be known.
func tick() uint32 {
	var t unix.Timespec
	if unix.ClockGetres(unix.CLOCK_MONOTONIC_COARSE, &t) != nil || t.Nano() <= 0 {
		return 10_000
	}
	return uint32((t.Nano() + 999) / 1000)
}

// netnsCookie returns the kernel's cookie of this thread's network namespace.
func netnsCookie() (uint64, error) {
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, fmt.Errorf("open a socket: %w", err)
	}
	defer unix.Close(s)
	cookie, err := unix.GetsockoptUint64(s, unix.SOL_SOCKET, unix.SO_NETNS_COOKIE)
	if err != nil {
		return 0, explainLoad(err)
	}
	return cookie, nil
}
