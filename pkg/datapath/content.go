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
	}
	for id := uint32(1); id < s.backends.len; id++ {
		if b := s.backends.at(id); b.To.Port != 0 {
			c.Backends[id] = decodeAddrPort(b.To)
		}
	}
	if err := s.readServices(c.Services); err != nil {
		return c, err
	}
	if err := s.readFrontends(c.Frontends); err != nil {
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
	return c, s.readAddresses(c.Addresses)
}

func (s *mapSet) readSourceRanges(out map[plan.SourceRange]bool) error {
	var key headgateSourceRange
	var value uint32
	entries := s.byName["source_ranges"].Iterate()
	for entries.Next(&key, &value) {
		out[decodeSourceRange(key)] = true
	}
	return entries.Err()
}

func (s *mapSet) readServices(out map[uint32]plan.Service) error {
	for id := uint32(1); id < s.services.len; id++ {
		name := decodeString(s.services.at(id).Name[:])
		if name == "" {
			continue
		}
		service, err := parseService(name)
		if err != nil {
			return fmt.Errorf("service %d: %w", id, err)
		}
		out[id] = service
	}
	return nil
}

func (s *mapSet) readFrontends(out map[lb.AddrPort]plan.Frontend) error {
	var key headgateAddrPort
	var id uint32
	entries := s.byName["frontend_ids"].Iterate()
	for entries.Next(&key, &id) {
		if id >= s.frontends.len {
			return fmt.Errorf("frontend %s has ID %d, there is room for %d", decodeAddrPort(key), id, s.frontends.len)
		}
		out[decodeAddrPort(key)] = decodeFrontend(id, *s.frontends.at(id))
	}
	return entries.Err()
}

// readTables reads the tables that a frontend names.
func (s *mapSet) readTables(c plan.Content, key lb.AddrPort) (err error) {
	f := c.Frontends[key]
	for _, v := range []plan.View{f.Internal, f.External, {Table: f.Known}} {
		t := v.Table
		if t.Size > 0 && c.Tables[t] == nil {
			if c.Tables[t], err = s.readSlots(t.Offset, t.Size); err != nil {
				return fmt.Errorf("frontend %s names table %s, %w", key, t, err)
			}
		}
		if v.Weighted && c.Weights[t] == nil {
			if c.Weights[t], err = s.readSlots(t.Offset+t.Size, t.Size); err != nil {
				return fmt.Errorf("frontend %s names table %s with weights, %w", key, t, err)
			}
		}
	}
	return nil
}

// readSlots returns a run of slots.
func (s *mapSet) readSlots(offset, size uint32) ([]uint32, error) {
	if uint64(offset)+uint64(size) > uint64(s.slots.len)*uint64(slotsPerChunk) {
		return nil, errors.New("which ends behind the last slot")
	}
	out := make([]uint32, size)
	for i := range out {
		slot := offset + uint32(i)
		out[i] = s.slots.at(slot / slotsPerChunk).Backend[slot%slotsPerChunk]
	}
	return out, nil
}

func (s *mapSet) readAddresses(out map[netip.Addr]plan.AddressKind) error {
	var key headgateIpAddr
	var value headgateAddress
	entries := s.byName["addresses"].Iterate()
	for entries.Next(&key, &value) {
		out[decodeAddr(key)] = decodeAddress(value)
	}
	return entries.Err()
}
