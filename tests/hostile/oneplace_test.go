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

// frontendsOfOnePlace asks for more frontends of one place of the frontends map than a search reaches. The attacker knows
// the factors of the hash, which are secret: so this is more than a tenant can do.
func frontendsOfOnePlace(ctx context.Context, s *stage, got *row) {
	place, places := s.frontendPlaces()
	var all strings.Builder
	for i, found := uint32(0), 0; found < 80; i++ {
		addr, port := netip.AddrFrom4([4]byte{198, 18 + byte(i>>16&1), byte(i >> 8), byte(i)}), uint16(80+i>>17)
		if place(addr, port) != 7 {
			continue
		}
		found++
		o := object{
			namespace: "attacker", name: fmt.Sprintf("place-%d", found), created: "2026", endpoints: []netip.Addr{tenantAddr},
			ports: []string{fmt.Sprintf("{name: t, protocol: TCP, port: %d, targetPort: 8080}", port)}, targets: webTargets[:1],
			spec: []string{fmt.Sprintf("clusterIP: 10.96.9.%d", found), fmt.Sprintf("clusterIPs: [10.96.9.%d]", found), fmt.Sprintf("externalIPs: [%s]", addr)},
		}
		all.WriteString(o.yaml())
	}
	s.agent.Write("attack.yaml", all.String())
	s.awaitRead(ctx)
	s.wantLate(ctx, got)
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
