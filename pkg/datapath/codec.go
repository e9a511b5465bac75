package datapath

import (
	"encoding/binary"
	"fmt"
	mathbits "math/bits"
	"net/netip"
	"strings"
	"unsafe"

	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/plan"
)

// This file is the only one that knows byte order: addresses and ports are in
// network order in the maps, everything else as the machine has it.

func encodeAddr(a netip.Addr) headgateIpAddr {
	var out headgateIpAddr
	b := a.As16()
	for i := range out.Word {
		out.Word[i] = binary.NativeEndian.Uint32(b[4*i:])
	}
	return out
}

func decodeAddr(a headgateIpAddr) netip.Addr { return netip.AddrFrom16(rawBytes(a)).Unmap() }

// rawBytes returns an address as it goes over the wire.
func rawBytes(a headgateIpAddr) [16]byte {
	var b [16]byte
	for i, w := range a.Word {
		binary.NativeEndian.PutUint32(b[4*i:], w)
	}
	return b
}

func swapPort(p uint16) uint16 {
	var b [2]byte
	binary.BigEndian.PutUint16(b[:], p)
	return binary.NativeEndian.Uint16(b[:])
}

func encodeAddrPort(a lb.AddrPort) headgateAddrPort {
	return headgateAddrPort{Addr: encodeAddr(a.Addr), Port: swapPort(a.Port), Protocol: uint8(a.Protocol)}
}

func decodeAddrPort(a headgateAddrPort) lb.AddrPort {
	return lb.AddrPort{Addr: decodeAddr(a.Addr), Port: swapPort(a.Port), Protocol: lb.Protocol(a.Protocol)}
}

// encodePrefix returns a prefix as address and mask; an IPv4 prefix is one of
// IPv4-mapped addresses.
func encodePrefix(p netip.Prefix) headgateServiceCidr {
	bits := p.Bits()
	if p.Addr().Is4() {
		bits += 96
	}
	var mask [16]byte
	for i := range bits {
		mask[i/8] |= 0x80 >> (i % 8)
	}
	return headgateServiceCidr{Addr: encodeAddr(p.Addr()), Mask: encodeAddr(netip.AddrFrom16(mask))}
}

// serviceBits is the length of the part of a source range that is the Service.
const serviceBits = int(8 * unsafe.Sizeof(headgateSourceRange{}.Service))

// encodeSourceRange returns a source range as a key of a trie: the Service in
// full, then a prefix of addresses.
func encodeSourceRange(r plan.SourceRange) headgateSourceRange {
	bits := r.Prefix.Bits()
	if r.Prefix.Addr().Is4() {
		bits += 96
	}
	return headgateSourceRange{Prefixlen: uint32(serviceBits + bits), Service: r.Service, Addr: encodeAddr(r.Prefix.Addr())}
}

func decodeSourceRange(r headgateSourceRange) plan.SourceRange {
	addr, bits := decodeAddr(r.Addr), int(r.Prefixlen)-serviceBits
	if addr.Is4() {
		bits -= 96
	}
	return plan.SourceRange{Service: r.Service, Prefix: netip.PrefixFrom(addr, bits)}
}

// decodePrefix returns the prefix of an address and mask, false for none.
func decodePrefix(c headgateServiceCidr) (netip.Prefix, bool) {
	mask := rawBytes(c.Mask)
	bits := 0
	for _, b := range mask {
		bits += mathbits.OnesCount8(b)
	}
	addr := decodeAddr(c.Addr)
	if bits == 0 {
		return netip.Prefix{}, false
	}
	if addr.Is4() {
		bits -= 96
	}
	return netip.PrefixFrom(addr, bits), true
}

// encodeDevice returns the addresses of a device, all zero where it has none.
func encodeDevice(d plan.Device) headgateDevice {
	var out headgateDevice
	if d.IP4.IsValid() {
		out.Ip4 = encodeAddr(d.IP4)
	}
	if d.IP6.IsValid() {
		out.Ip6 = encodeAddr(d.IP6)
	}
	if d.Pod {
		out.Flags |= headgateDeviceFlagDEVICE_POD
	}
	if d.L3 {
		out.Flags |= headgateDeviceFlagDEVICE_L3
	}
	if d.Veth {
		out.Flags |= headgateDeviceFlagDEVICE_VETH
	}
	if d.Shared {
		out.Flags |= headgateDeviceFlagDEVICE_SHARED
	}
	if d.Trunk {
		out.Flags |= headgateDeviceFlagDEVICE_TRUNK
	}
	return out
}

// kindFlags is the kinds of frontends as flags; a ClusterIP has none.
var kindFlags = map[lb.FrontendKind]headgateFrontendFlag{
	lb.NodePort:       headgateFrontendFlagFRONTEND_NODE_PORT,
	lb.LoadBalancerIP: headgateFrontendFlagFRONTEND_LOAD_BALANCER,
	lb.ExternalIP:     headgateFrontendFlagFRONTEND_EXTERNAL_IP,
}

func encodeTable(t plan.Table) headgateTable { return headgateTable{Offset: t.Offset, Size: t.Size} }

func decodeTable(t headgateTable) plan.Table { return plan.Table{Offset: t.Offset, Size: t.Size} }

// The bit of dense tables is the same in plan and in C.
var _ = [1]struct{}{}[plan.DenseSlot-uint32(headgateSlotNumberDENSE_SLOT)]

// Views hold the size of their table and, in the top bits, their algorithm.
const (
	sizeMask       = uint32(headgateViewSizeVIEW_SIZE_MASK)
	algorithmShift = headgateViewSizeVIEW_ALGORITHM_SHIFT
	weighted       = uint32(headgateViewSizeALGORITHM_WEIGHTED)
)

// encodeView returns a view as the datapath has it: algorithms in the order of
// pkg/lb, from lb.Random on, which plan leaves out.
func encodeView(v plan.View) headgateView {
	var algorithm uint32
	if v.Algorithm != lb.AlgorithmDefault {
		algorithm = uint32(v.Algorithm - lb.Random)
	}
	if v.Weighted {
		algorithm |= weighted
	}
	if v.Table.Size == 0 {
		return headgateView{}
	}
	return headgateView{Offset: v.Table.Offset, Size: v.Table.Size&sizeMask | algorithm<<algorithmShift}
}

func decodeView(v headgateView) plan.View {
	out := plan.View{Table: plan.Table{Offset: v.Offset, Size: v.Size & sizeMask}}
	algorithm := v.Size >> algorithmShift
	out.Weighted = algorithm&weighted != 0
	if algorithm &^= weighted; algorithm != 0 {
		out.Algorithm = lb.Random + lb.Algorithm(algorithm)
	}
	return out
}

// The indexes of views are the same in lb and in C: anything else does not compile.
var _ = [1]struct{}{}[lb.Internal-int(headgateViewIndexVIEW_INTERNAL)]
var _ = [1]struct{}{}[lb.External-int(headgateViewIndexVIEW_EXTERNAL)]
var _ = [1]struct{}{}[lb.FallbackZone-int(headgateViewIndexVIEW_FALLBACK_ZONE)]
var _ = [1]struct{}{}[lb.FallbackAll-int(headgateViewIndexVIEW_FALLBACK_ALL)]
var _ = [1]struct{}{}[lb.WhyLocal-lb.Why(headgateFrontendFlagFRONTEND_WHY_LOCAL>>headgateFrontendFlagFRONTEND_WHY_SHIFT)]
var _ [lb.FallbackZone]headgateView = headgateFrontend{}.Views
var _ [lb.NumViews - lb.FallbackZone]headgateView = headgateFallbacks{}.To

// The flags of a client's view are shifted by its index; the reason why it has its
// backends takes whyBits of them.
var (
	whyBits  = int(headgateFrontendFlagFRONTEND_WHY_BITS)
	whyShift = int(headgateFrontendFlagFRONTEND_WHY_SHIFT)
)

func encodeViewFlags(i int, v plan.View) (flags headgateFrontendFlag) {
	if v.NoLocal {
		flags |= headgateFrontendFlagFRONTEND_NO_LOCAL << i
	}
	if v.FallsBack {
		flags |= headgateFrontendFlagFRONTEND_FALLS_BACK << i
	}
	return flags | headgateFrontendFlag(v.Why)<<(whyShift+whyBits*i)
}

func decodeViewFlags(i int, flags headgateFrontendFlag, v *plan.View) {
	v.NoLocal = flags&(headgateFrontendFlagFRONTEND_NO_LOCAL<<i) != 0
	v.FallsBack = flags&(headgateFrontendFlagFRONTEND_FALLS_BACK<<i) != 0
	v.Why = lb.Why(flags >> (whyBits * i) & headgateFrontendFlagFRONTEND_WHY >> whyShift)
}

// encodeFrontend returns what stands behind an address, without that address.
func encodeFrontend(f plan.Frontend) (headgateFrontend, headgateFallbacks) {
	out := headgateFrontend{
		Members: encodeTable(f.Members), Flags: kindFlags[f.Kind], Service: f.Service,
		AffinityTimeoutS: f.AffinityTimeout, SlowStartS: f.SlowStart,
	}
	fallbacks := headgateFallbacks{Spill: f.Spill}
	for i, v := range f.Views[:lb.FallbackZone] {
		out.Views[i] = encodeView(v)
		out.Flags |= encodeViewFlags(i, v)
	}
	for i, v := range f.Views[lb.FallbackZone:] {
		fallbacks.To[i] = encodeView(v)
	}
	if f.Filtered {
		out.Flags |= headgateFrontendFlagFRONTEND_SOURCE_RANGES
	}
	if f.Carried {
		out.Flags |= headgateFrontendFlagFRONTEND_CARRIED
	}
	if f.Former {
		out.Flags |= headgateFrontendFlagFRONTEND_FORMER
	}
	if f.PassiveHealth == lb.SwitchOn {
		out.Flags |= headgateFrontendFlagFRONTEND_PASSIVE_HEALTH
	}
	if f.CloseUDP {
		out.Flags |= headgateFrontendFlagFRONTEND_UDP_CLOSE
	}
	return out, fallbacks
}

func decodeFrontend(f headgateFrontend, fallbacks headgateFallbacks) plan.Frontend {
	out := plan.Frontend{
		Service:  f.Service,
		Members:  decodeTable(f.Members),
		Filtered: f.Flags&headgateFrontendFlagFRONTEND_SOURCE_RANGES != 0,
		Carried:  f.Flags&headgateFrontendFlagFRONTEND_CARRIED != 0,
		Former:   f.Flags&headgateFrontendFlagFRONTEND_FORMER != 0,
		Steering: lb.Steering{
			AffinityTimeout: f.AffinityTimeoutS,
			PassiveHealth:   lb.SwitchTo(f.Flags&headgateFrontendFlagFRONTEND_PASSIVE_HEALTH != 0),
			SlowStart:       f.SlowStartS,
			CloseUDP:        f.Flags&headgateFrontendFlagFRONTEND_UDP_CLOSE != 0,
			Spill:           fallbacks.Spill,
		},
	}
	for i, v := range f.Views {
		out.Views[i] = decodeView(v)
		decodeViewFlags(i, f.Flags, &out.Views[i])
	}
	for i, v := range fallbacks.To {
		out.Views[lb.FallbackZone+i] = decodeView(v)
	}
	for kind, flag := range kindFlags {
		if f.Flags&flag != 0 {
			out.Kind = kind
		}
	}
	return out
}

// kindBits is the kinds of addresses as the datapath knows them.
var kindBits = map[plan.AddressKind]headgateAddressKind{
	plan.NodeAddress:     headgateAddressKindADDRESS_NODE,
	plan.LoopbackAddress: headgateAddressKindADDRESS_LOOPBACK,
	plan.ServiceAddress:  headgateAddressKindADDRESS_SERVICE,
	plan.FrontendAddress: headgateAddressKindADDRESS_FRONTEND,
	plan.OwnAddress:      headgateAddressKindADDRESS_OWN,
}

func encodeAddress(k plan.AddressKind) headgateAddress {
	var out headgateAddress
	for kind, bit := range kindBits {
		if k&kind != 0 {
			out.Kind |= bit
		}
	}
	return out
}

func decodeAddress(a headgateAddress) plan.AddressKind {
	var out plan.AddressKind
	for kind, bit := range kindBits {
		if a.Kind&bit != 0 {
			out |= kind
		}
	}
	return out
}

func encodeString(dst []int8, s string) {
	clear(dst)
	for i := 0; i < len(s) && i < len(dst)-1; i++ {
		dst[i] = int8(s[i])
	}
}

func decodeString(src []int8) string {
	var b strings.Builder
	for _, c := range src {
		if c == 0 {
			break
		}
		b.WriteByte(byte(c))
	}
	return b.String()
}

// parseService reads the name of a Service port as plan.Service prints it.
func parseService(s string) (plan.Service, error) {
	rest, protocol, ok := cutLast(s, "/")
	namespace, rest, ok2 := strings.Cut(rest, "/")
	name, port, _ := strings.Cut(rest, ":")
	out := plan.Service{ServiceName: lb.ServiceName{Namespace: namespace, Name: name}, Port: port}
	for _, p := range []lb.Protocol{lb.TCP, lb.UDP, lb.SCTP} {
		if p.String() == protocol {
			out.Protocol = p
		}
	}
	if !ok || !ok2 || out.Protocol == 0 {
		return plan.Service{}, fmt.Errorf("%q is no name of a Service port", s)
	}
	return out, nil
}

func cutLast(s, sep string) (before, after string, found bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}
