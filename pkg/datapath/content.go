package datapath

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/plan"
)

// content reads what the maps hold.
func (s *mapSet) content() (plan.Content, error) {
	c := plan.Content{
		Frontends: map[lb.AddrPort]plan.Frontend{},
		Tables:    map[plan.Table][]uint32{},
		Weights:   map[plan.Table][]uint32{},
		Backends:  map[uint32]lb.AddrPort{},
		Services:  map[uint32]plan.Service{},
		Addresses: map[netip.Addr]plan.AddressKind{},

		SourceRanges: map[plan.SourceRange]bool{},

		Homes: map[uint32]uint32{}, Peers: map[uint32]plan.Peer{},
	}
	if err := s.readBackends(c); err != nil {
		return c, err
	}
	if err := s.readServices(c.Services); err != nil {
		return c, err
	}
	err := s.eachFrontend(func(at lb.AddrPort, f plan.Frontend) error {
		c.Frontends[at] = f
		return nil
	})
	if err != nil {
		return c, err
	}
	if err := s.wholeTables(c.Frontends); err != nil {
		return c, err
	}
	for key := range c.Frontends {
		if err := s.readTables(c, key); err != nil {
			return c, err
		}
	}
	for _, cidr := range s.cidrs.at(0).Cidr {
		if p, ok := decodePrefix(cidr); ok {
			c.ServiceCIDRs = append(c.ServiceCIDRs, p)
		}
	}
	if err := s.readSourceRanges(c.SourceRanges); err != nil {
		return c, err
	}
	if err := s.readAddresses(c.Addresses); err != nil {
		return c, err
	}
	return c, s.readPeers(&c)
}

func (s *mapSet) readBackends(c plan.Content) error {
	backends, err := s.backends.all(false)
	if err != nil {
		return err
	}
	defer backends.Close()
	for id := uint32(1); id < backends.len; id++ {
		if b := backends.at(id); b.To.Port != 0 {
			c.Backends[id] = decodeAddrPort(b.To)
			if b.Home != plan.HomeUnknown {
				c.Homes[id] = b.Home
			}
		}
	}
	return nil
}

func (s *mapSet) readSourceRanges(out map[plan.SourceRange]bool) error {
	return walk(s.byName["source_ranges"], func(key *headgateSourceRange, _ *uint32) error {
		out[decodeSourceRange(*key)] = true
		return nil
	})
}

func (s *mapSet) readServices(out map[uint32]plan.Service) error {
	names, err := s.services.all(false)
	if err != nil {
		return err
	}
	defer names.Close()
	for id := uint32(1); id < names.len; id++ {
		service, err := s.service(names.at(id), id)
		if err != nil {
			return err
		}
		if service != (plan.Service{}) {
			out[id] = service
		}
	}
	return nil
}

// service returns the Service port with an ID; the zero Service for none.
func (s *mapSet) service(at *headgateService, id uint32) (plan.Service, error) {
	name := readName(at, &s.about.at(0).Writes)
	if name == "" {
		return plan.Service{}, nil
	}
	service, err := parseService(name)
	if err != nil {
		return plan.Service{}, fmt.Errorf("service %d: %w", id, err)
	}
	return service, nil
}

// eachFrontend calls do with every frontend, in no order, until it returns an error.
func (s *mapSet) eachFrontend(do func(lb.AddrPort, plan.Frontend) error) error {
	for place := range s.frontends.len {
		f := *s.frontends.at(place)
		if !isFrontend(f.At) {
			continue
		}
		if err := do(decodeAddrPort(f.At), decodeFrontend(f, *s.fallbacks.at(place))); err != nil {
			return err
		}
	}
	return nil
}

// wholeTables returns an error unless the tables that frontends name fit into the
// slots map together: they do not overlap, but garbage would be read many times over.
func (s *mapSet) wholeTables(frontends map[lb.AddrPort]plan.Frontend) error {
	seen, slots := map[plan.Table]bool{}, uint64(0)
	for _, f := range frontends {
		for _, t := range f.Tables() {
			if !seen[t] && !t.Dense() {
				seen[t] = true
				slots += uint64(t.Size)
			}
		}
	}
	if room := uint64(s.slots.len) * uint64(slotsPerChunk); slots > room {
		return contradiction{fmt.Errorf("frontends name tables of %d slots, there are %d", slots, room)}
	}
	return nil
}

// readTables reads the tables that a frontend names.
func (s *mapSet) readTables(c plan.Content, key lb.AddrPort) (err error) {
	f := c.Frontends[key]
	for _, t := range f.Tables() {
		if t.Size > 0 && c.Tables[t] == nil {
			if c.Tables[t], err = s.readTable(t); err != nil {
				return fmt.Errorf("frontend %s names table %s, %w", key, t, err)
			}
		}
	}
	for _, v := range f.Views {
		if t := v.Table; v.Weighted && c.Weights[t] == nil {
			if c.Weights[t], err = s.readSlots(t.Offset+t.Size, t.Size); err != nil {
				return fmt.Errorf("frontend %s names table %s with weights, %w", key, t, err)
			}
		}
	}
	return nil
}

// readTable returns the backend IDs of a table, slot by slot.
func (s *mapSet) readTable(t plan.Table) ([]uint32, error) {
	if !t.Dense() {
		return s.readSlots(t.Offset, t.Size)
	}
	if uint64(t.Offset&^plan.DenseSlot)+uint64(t.Size) > uint64(s.backends.len) {
		return nil, contradiction{errors.New("which ends behind the last backend")}
	}
	return t.IDs(), nil
}

// readSlots returns a run of slots.
func (s *mapSet) readSlots(offset, size uint32) ([]uint32, error) {
	if uint64(offset)+uint64(size) > uint64(s.slots.len)*uint64(slotsPerChunk) {
		return nil, contradiction{errors.New("which ends behind the last slot")}
	}
	out := make([]uint32, size)
	for i := range out {
		slot := offset + uint32(i)
		out[i] = s.slots.at(slot / slotsPerChunk).Backend[slot%slotsPerChunk]
	}
	return out, nil
}

func (s *mapSet) readAddresses(out map[netip.Addr]plan.AddressKind) error {
	return walk(s.byName["addresses"], func(key *headgateIpAddr, value *headgateAddress) error {
		out[decodeAddr(*key)] = decodeAddress(*value)
		return nil
	})
}
