package hostile_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// externalsOfOnePlace and clusterIPsOfOnePlace ask for frontends of one place by external IPs, and by ClusterIPs.
func externalsOfOnePlace(ctx context.Context, s *stage, got *row) {
	s.frontendsOfOnePlace(ctx, got, func(number int, chosen netip.Addr) []string {
		return []string{fmt.Sprintf("clusterIP: 10.96.9.%d", number), fmt.Sprintf("clusterIPs: [10.96.9.%d]", number), fmt.Sprintf("externalIPs: [%s]", chosen)}
	})
}

func clusterIPsOfOnePlace(ctx context.Context, s *stage, got *row) {
	s.frontendsOfOnePlace(ctx, got, func(_ int, chosen netip.Addr) []string {
		return []string{fmt.Sprintf("clusterIP: %s", chosen), fmt.Sprintf("clusterIPs: [%s]", chosen)}
	})
}

// frontendsOfOnePlace asks for more frontends of one place of the frontends map than a search reaches. The attacker knows
// the factors of the hash, which are secret: so this is more than a tenant can do.
func (s *stage) frontendsOfOnePlace(ctx context.Context, got *row, spec func(number int, chosen netip.Addr) []string) {
	s.tb.Helper()
	place, places := s.frontendPlaces()
	const services = 80
	var all strings.Builder
	for i, found := uint32(0), 0; found < services; i++ {
		addr, port := netip.AddrFrom4([4]byte{198, 18 + byte(i>>16&1), byte(i >> 8), byte(i)}), uint16(80+i>>17)
		if place(addr, port) != 7 {
			continue
		}
		found++
		o := object{
			namespace: "attacker", name: fmt.Sprintf("place-%d", found), created: "2026", endpoints: []netip.Addr{tenantAddr},
			ports: []string{fmt.Sprintf("{name: t, protocol: TCP, port: %d, targetPort: 8080}", port)}, targets: webTargets[:1], spec: spec(found, addr),
		}
		all.WriteString(o.yaml())
	}
	s.agent.Write("attack.yaml", all.String())
	s.awaitRead(ctx)
	s.wantLate(ctx, got)
	if now := s.agent.Status().Frontends; now < frontends+services {
		got.gain("%d frontends are in force: fewer than there are of the victim and the attacker", now)
	}
	if _, now := s.frontendPlaces(); now != places {
		got.gain("the frontends map grew from %d places to %d", places, now)
	}
}

// frontendPlaces returns the place of a frontend of TCP in the map in force, and how many places there are.
func (s *stage) frontendPlaces() (place func(a netip.Addr, port uint16) uint32, places uint32) {
	s.tb.Helper()
	maps := map[string]*ebpf.Map{}
	for _, name := range []string{"about", "frontends"} {
		m, err := ebpf.LoadPinnedMap(filepath.Join(s.agent.Root, "maps", name), nil)
		if err != nil {
			s.tb.Fatal(err)
		}
		defer m.Close()
		maps[name] = m
	}
	about, err := maps["about"].LookupBytes(uint32(0))
	if err != nil {
		s.tb.Fatal(err)
	}
	var factors [5]uint64
	for i := range factors {
		factors[i] = binary.NativeEndian.Uint64(about[s.offsetOf("about", "frontend_factors")+8*i:])
	}
	places = maps["frontends"].MaxEntries()
	return func(a netip.Addr, port uint16) uint32 {
		mapped := a.As16()
		var network [2]byte
		binary.BigEndian.PutUint16(network[:], port)
		sum := factors[4] * uint64(uint32(binary.NativeEndian.Uint16(network[:]))<<16|unix.IPPROTO_TCP)
		for i := range 4 {
			sum += factors[i] * uint64(binary.NativeEndian.Uint32(mapped[4*i:]))
		}
		return uint32((sum^sum>>32)*0x9e3779b1>>32) & (places - 1)
	}, places
}
