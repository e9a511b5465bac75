package lb

import (
	"iter"
	"net/netip"
	"sort"
)

// Told is Descriptions of very many backends, in a third of the memory: they are on few nodes, in few zones and in few
// states. A nil one knows nothing, as nobody told it.
type Told struct {
	pages  []toldPage
	len    int
	places []whereabouts
	place  map[whereabouts]uint32 // among places
	// Services of backends.
	services []ServiceName
	service  map[ServiceName]int // among services
}

// toldPage is some of them, whose names stand one behind the other: one array of all would be copied again and
// again as it grows.
type toldPage struct {
	all  []told
	pods []byte
}

// told is a Description, without a pointer that a collector of garbage would have to follow.
type told struct {
	backend CompactAddrPort
	pods    uint32 // where its name ends in those of the page
	place   uint32
	service uint32
}

// CompactAddrPort is an AddrPort where there are very many: in 20 bytes instead of 32, and without a pointer.
type CompactAddrPort struct {
	addr     [16]byte
	port     uint16
	protocol Protocol
	ipv4     bool
}

// Compact returns the same in less memory.
func (a AddrPort) Compact() CompactAddrPort {
	return CompactAddrPort{a.Addr.As16(), a.Port, a.Protocol, a.Addr.Is4()}
}

// AddrPort returns what was made compact.
func (c CompactAddrPort) AddrPort() AddrPort {
	addr := netip.AddrFrom16(c.addr)
	if c.ipv4 {
		addr = addr.Unmap()
	}
	return AddrPort{addr, c.port, c.protocol}
}

// whereabouts is what many backends have in common.
type whereabouts struct {
	namespace, node, zone string
	state                 BackendState
	slice, port           string
}

// inToldPage is how many stand in one page.
const inToldPage = 1024

// Add adds a description, behind those of all backends before it.
func (t *Told) Add(d Description) {
	if t.place == nil {
		t.place, t.service = map[whereabouts]uint32{}, map[ServiceName]int{}
	}
	where := whereabouts{d.Pod.Namespace, d.Node, d.Zone, d.State, d.Slice, d.Port}
	at, known := t.place[where]
	if !known {
		at = uint32(len(t.places))
		t.place[where] = at
		t.places = append(t.places, where)
	}
	service, known := t.service[d.Service]
	if !known {
		service = len(t.services)
		t.service[d.Service] = service
		t.services = append(t.services, d.Service)
	}
	if t.len%inToldPage == 0 {
		t.pages = append(t.pages, t.newPage())
	}
	p := &t.pages[len(t.pages)-1]
	p.pods = append(p.pods, d.Pod.Name...)
	p.all = append(p.all, told{d.Backend.Compact(), uint32(len(p.pods)), at, uint32(service)})
	t.len++
}

// newPage returns a page for more. Names are about as long as those of the page before.
func (t *Told) newPage() (p toldPage) {
	if last := len(t.pages) - 1; last >= 0 {
		before := len(t.pages[last].pods)
		p.all, p.pods = make([]told, 0, inToldPage), make([]byte, 0, before+before/64)
	}
	return p
}

// Of returns that of a backend of a Service, nil where there is none.
func (t *Told) Of(at AddrPort, service ServiceName) *Description {
	if i := t.search(at, service); i < t.size() && t.at(i).backend == at.Compact() && t.services[t.at(i).service] == service {
		return t.description(i)
	}
	return nil
}

// At returns that of a backend at an address, whatever its port; nil where there is none.
func (t *Told) At(addr netip.Addr) *Description {
	if i := t.search(AddrPort{Addr: addr}, ServiceName{}); i < t.size() && t.at(i).backend.AddrPort().Addr == addr {
		return t.description(i)
	}
	return nil
}

// ZoneOf returns the zone of a node, "" where no backend on it tells.
func (t *Told) ZoneOf(node string) string {
	for i := range t.size() {
		if p := &t.places[t.at(i).place]; p.node == node && p.zone != "" {
			return p.zone
		}
	}
	return ""
}

// All goes through them.
func (t *Told) All() iter.Seq[*Description] {
	return func(yield func(*Description) bool) {
		for i := range t.size() {
			if !yield(t.description(i)) {
				return
			}
		}
	}
}

func (t *Told) size() int {
	if t == nil {
		return 0
	}
	return t.len
}

// search returns the first that is not before a backend of a Service.
func (t *Told) search(backend AddrPort, service ServiceName) int {
	return sort.Search(t.size(), func(i int) bool {
		order := t.at(i).backend.AddrPort().Compare(backend)
		if order == 0 {
			order = t.services[t.at(i).service].Compare(service)
		}
		return order >= 0
	})
}

func (t *Told) at(i int) *told { return &t.pages[i/inToldPage].all[i%inToldPage] }

func (t *Told) description(i int) *Description {
	one, from := t.at(i), uint32(0)
	if i%inToldPage > 0 {
		from = t.at(i - 1).pods
	}
	where := &t.places[one.place]
	return &Description{
		Backend: one.backend.AddrPort(), Service: t.services[one.service], Pod: PodName{Namespace: where.namespace, Name: string(t.pages[i/inToldPage].pods[from:one.pods])},
		Node: where.node, Zone: where.zone, State: where.state, Slice: where.slice, Port: where.port,
	}
}
