package plan

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/headgate/headgate/pkg/lb"
)

// Op is one write to one map. Doing an Op twice is the same as doing it once.
type Op interface {
	// String is the operation as one line of text.
	String() string
}

// The operations. Put creates or replaces, Delete and Clear remove. Clear ops
// touch what nothing has referred to for a grace period.
type (
	// PutBackend writes a backend under an ID that no table names yet.
	PutBackend struct {
		ID      uint32
		Backend lb.AddrPort
	}
	// PutTable writes a run of slots that no frontend names yet, and what its
	// algorithm needs behind them: weights, or a cursor at any number.
	PutTable struct {
		Table    Table
		Backends []uint32
		Weights  []uint32
		Cursor   bool
		key      string // by which the planner finds it
	}
	// PutSlots changes slots of a table in use, one by one.
	PutSlots struct {
		Table Table
		Slots []SlotChange
	}
	// PutService writes the name of a Service port.
	PutService struct {
		ID      uint32
		Service Service
	}
	// PutFrontend makes clients of an address reach its tables. Where the address has
	// a frontend each table changes in one step; or, anew, all of it does.
	PutFrontend struct {
		Key   lb.AddrPort
		Value Frontend
		Anew  bool
	}
	// PutAddress says what kinds of address an address is.
	PutAddress struct {
		Addr netip.Addr
		Kind AddressKind
	}
	// PutSourceRange lets clients use filtered frontends.
	PutSourceRange struct{ Range SourceRange }
	// DeleteSourceRange no longer lets them.
	DeleteSourceRange struct{ Range SourceRange }
	// PutServiceCIDRs replaces the prefixes of which every address is a
	// Service's, so that one which no Service has is refused.
	PutServiceCIDRs struct{ Prefixes []netip.Prefix }
	// DeleteFrontend ends a frontend.
	DeleteFrontend struct{ Key lb.AddrPort }
	// DeleteAddress forgets an address.
	DeleteAddress struct{ Addr netip.Addr }
	// Grace waits until no running program can still hold what the
	// operations before it unlinked.
	Grace struct{}
	// ClearFrontend frees the places where a frontend was.
	ClearFrontend struct{ Key lb.AddrPort }
	// ClearBackend empties a backend ID that no table names any more.
	ClearBackend struct{ ID uint32 }
	// ClearService empties a Service ID that no frontend names any more.
	ClearService struct{ ID uint32 }
)

func (o PutBackend) String() string { return fmt.Sprintf("put backend %d %s", o.ID, o.Backend) }
func (o PutTable) String() string {
	s := fmt.Sprintf("put table %s backends %s", o.Table, joinIDs(o.Backends))
	if o.Weights != nil {
		s += " weights " + joinIDs(o.Weights)
	}
	if o.Cursor {
		s += " cursor"
	}
	return s
}
func (o PutSlots) String() string {
	var s strings.Builder
	fmt.Fprintf(&s, "put slots of table %s", o.Table)
	for _, c := range o.Slots {
		fmt.Fprintf(&s, " %d=%d", c.Index, c.To)
	}
	return s.String()
}
func (o PutService) String() string { return fmt.Sprintf("put service %d %s", o.ID, o.Service) }
func (o PutFrontend) String() string {
	s := fmt.Sprintf("put frontend %s %s", o.Key, o.Value)
	if o.Anew {
		s += " anew"
	}
	return s
}
func (o PutAddress) String() string        { return fmt.Sprintf("put address %s %s", o.Addr, o.Kind) }
func (o PutSourceRange) String() string    { return "put source range " + o.Range.String() }
func (o DeleteSourceRange) String() string { return "delete source range " + o.Range.String() }
func (o PutServiceCIDRs) String() string {
	return "put service cidrs " + strings.Trim(fmt.Sprint(o.Prefixes), "[]")
}
func (o DeleteFrontend) String() string { return fmt.Sprintf("delete frontend %s", o.Key) }
func (o DeleteAddress) String() string  { return fmt.Sprintf("delete address %s", o.Addr) }
func (o Grace) String() string          { return "grace" }
func (o ClearFrontend) String() string  { return fmt.Sprintf("clear frontend %s", o.Key) }
func (o ClearBackend) String() string   { return fmt.Sprintf("clear backend %d", o.ID) }
func (o ClearService) String() string   { return fmt.Sprintf("clear service %d", o.ID) }

// SlotChange is a slot of a table that names another backend than before.
type SlotChange struct {
	Index uint32 // in the table
	To    uint32 // backend ID
	Was   Owners
}

// String returns the value as it stands in dumps. What is as usual (every member
// takes connections, no session affinity) is left out.
func (f Frontend) String() string {
	s := fmt.Sprintf("kind %s service %d internal %s external %s", f.Kind, f.Service, f.Views[lb.Internal], f.Views[lb.External])
	if f.Members != f.Views[lb.Internal].Table {
		s += " members " + f.Members.String()
	}
	if f.Filtered {
		s += " filtered"
	}
	if f.Carried {
		s += " carried"
	}
	if f.Former {
		s += " former"
	}
	if a := f.Algorithm(); a != lb.Random {
		s += " algorithm " + a.String()
	}
	if f.Views[lb.Internal].FallsBack || f.Views[lb.External].FallsBack {
		s += fmt.Sprintf(" fallback %s %s", f.Views[lb.FallbackZone], f.Views[lb.FallbackAll])
	}
	if words := f.Words(); words != "" {
		s += " " + words
	}
	return s
}

// String returns the table, "none" without endpoints, or "no-local" where only
// the Local traffic policy leaves none.
func (v View) String() string {
	switch {
	case v.Table.Size > 0:
		return v.Table.String()
	case v.NoLocal:
		return "no-local"
	default:
		return "none"
	}
}

// String returns the kinds, joined by commas.
func (k AddressKind) String() string {
	var names []string
	for _, e := range []struct {
		bit  AddressKind
		name string
	}{{NodeAddress, "node"}, {LoopbackAddress, "loopback"}, {ServiceAddress, "service"}, {FrontendAddress, "frontend"}, {OwnAddress, "own"}} {
		if k&e.bit != 0 {
			names = append(names, e.name)
		}
	}
	return strings.Join(names, ",")
}

// joinIDs returns IDs separated by spaces.
func joinIDs(ids []uint32) string {
	return strings.Trim(fmt.Sprint(ids), "[]")
}
