package datapath

import (
	"errors"
	"fmt"
	"sync"

	"github.com/headgate/headgate/pkg/plan"
)

// Maps that must grow are replaced by larger ones, with programs that the kernel has verified for
// these: hundreds of milliseconds. So both are prepared beside the loop, ahead of need. What is
// left when they are needed is to fill the maps, and to replace the programs. What is prepared is
// pinned nowhere: it goes with the process.

// growth is what is prepared. The zero value is nothing.
type growth struct {
	mu       sync.Mutex // held while it is prepared, and while maps are replaced
	next     *emptyMaps
	programs programSet // that work on next, on the maps that it has become, or on those that Load found
	on       *mapSet    // these maps
	taken    *mapSet    // whose programs Attach has asked for last
}

// drop lets go of what is prepared.
func (g *growth) drop() {
	if g.next != nil {
		g.next.Close()
	}
	g.programs.Close()
	g.next, g.programs, g.on = nil, nil, nil
}

// takePrograms returns the programs that are prepared for these maps, none for others.
func (g *growth) takePrograms(on *mapSet) (p programSet) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.taken = on
	if g.on == on {
		p, g.programs, g.on = g.programs, nil, nil
	}
	return p
}

// fits says whether maps are prepared that hold what another set does, and have so much room.
func (g *growth) fits(sizes plan.Sizes, from *mapSet) bool {
	return g.next != nil && g.next.from == from && sizes.Fit(g.next.sizes())
}

// Prepare has larger maps, and programs that work on them, at hand for a Reserve of at most
// these sizes. It may be called while other calls are under way, but not twice at a time; a
// Reserve that needs larger maps meanwhile waits for it. Where there is room already it does
// nothing.
func (d *Datapath) Prepare(sizes plan.Sizes) error {
	g := &d.growth
	g.mu.Lock()
	defer g.mu.Unlock()
	from := d.maps
	sizes = grown(from.sizes(), sizes)
	if sizes == from.sizes() || g.fits(sizes, from) {
		return nil
	}
	g.drop()
	next, err := d.object.makeMaps(sizes, from)
	if err != nil {
		return fmt.Errorf("prepare maps of %+v: %w", sizes, err)
	}
	names, err := d.wantedPrograms()
	if err == nil {
		g.programs, err = d.object.loadPrograms(names, next.mapSet, nil)
	}
	if err != nil {
		next.Close()
		return fmt.Errorf("prepare programs for maps of %+v: %w", sizes, err)
	}
	g.next, g.on = next, next.mapSet
	return nil
}

// Load has the programs at hand that Attach is to put in force, on the maps as they are: so they are
// verified while it is planned what the maps are to hold. Where Attach has begun, or there is nothing
// to attach, it does nothing. It may be called while other calls are under way.
func (d *Datapath) Load() error {
	g := &d.growth
	g.mu.Lock()
	defer g.mu.Unlock()
	d.mu.Lock()
	attached := d.inForce == d.maps
	d.mu.Unlock()
	if attached || g.on == d.maps || g.taken == d.maps {
		return nil
	}
	names, err := d.wantedPrograms()
	if err != nil {
		return err
	}
	programs, err := d.load(names)
	if err != nil {
		return fmt.Errorf("load programs ahead of need: %w", err)
	}
	g.programs.Close()
	g.programs, g.on = programs, d.maps
	return nil
}

// Sizes returns the room that the maps have.
func (d *Datapath) Sizes() plan.Sizes { return d.maps.sizes() }

// Reserve makes room for at least the given sizes. Where a map is too small,
// a larger one takes its place while traffic goes on.
func (d *Datapath) Reserve(need plan.Sizes) error {
	have := d.maps.sizes()
	want := grown(have, need)
	if want == have {
		return nil
	}
	return d.replace(want, d.maps)
}

// placeTries is how often maps are replaced for a frontend that finds no place. Each time the factors of the hash are
// drawn anew, so that the next try does not depend on the one before.
const placeTries = 4

// makePlace replaces the maps by others in which frontends have other places, see FRONTEND_REACH. They are larger only if
// so many places are taken that this happens by chance: no choice of frontends makes maps grow.
func (d *Datapath) makePlace() error {
	sizes := d.maps.sizes()
	if !d.maps.isSparse() {
		sizes = grown(sizes, plan.Sizes{Frontends: sizes.Frontends + 1})
	}
	from := d.maps
	d.growth.setCrowded(from, true)
	err := d.replace(sizes, from)
	d.growth.setCrowded(from, false)
	return err
}

// setCrowded notes that the next set of maps draws other factors, while no maps are prepared.
func (g *growth) setCrowded(from *mapSet, crowded bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	from.crowded = crowded
}

// Reset replaces the maps by empty ones, for when what they hold makes no
// sense. Programs in force keep the former maps until Attach.
func (d *Datapath) Reset() error {
	return d.replace(d.cfg.Sizes, nil)
}

// replace makes maps again, of other sizes and with what from holds. What was in force
// is replaced at once, unless it should be empty.
func (d *Datapath) replace(sizes plan.Sizes, from *mapSet) error {
	attached, old := d.isAttached(), d.old
	d.old = append(d.old, d.maps)
	switch {
	case from == nil:
		d.flowsOf = nil // they speak of frontends that have no sense either
	case attached:
		d.flowsOf = []*mapSet{from}
	}
	if err := d.remake(sizes, from); err != nil {
		d.old = old
		return fmt.Errorf("replace the maps by others of %+v: %w", sizes, err)
	}
	if attached && from != nil {
		return d.Attach()
	}
	return nil
}

// remake replaces the maps of this process by others, with what from holds.
func (d *Datapath) remake(sizes plan.Sizes, from *mapSet) error {
	d.growth.mu.Lock()
	defer d.growth.mu.Unlock()
	d.teller.mu.Lock()
	defer d.teller.mu.Unlock()
	defer d.census.stop()()
	maps, err := d.filledMaps(sizes, from)
	for tries := 0; errors.Is(err, errNoPlace) && tries < placeTries; tries++ {
		if from.frontends == nil || !from.isSparse() {
			sizes.Frontends *= 2
		}
		maps, err = d.filledMaps(sizes, from)
	}
	if err != nil {
		return err
	}
	d.standing.Close() // it is of the former maps, as the next two are
	d.census.payload.Close()
	d.teller.forget()
	d.maps = maps
	return nil
}

// filledMaps returns maps of at least these sizes with what from holds: those that are prepared,
// or new ones.
func (d *Datapath) filledMaps(sizes plan.Sizes, from *mapSet) (*mapSet, error) {
	g := &d.growth
	if g.fits(sizes, from) && (from == nil || !from.crowded) {
		next := g.next
		g.next = nil
		return next.fill()
	}
	g.drop()
	next, err := d.object.makeMaps(sizes, from)
	if err != nil {
		return nil, err
	}
	return next.fill()
}

// grown returns sizes that hold need: as they are where that is enough,
// otherwise the next power of two.
func grown(have, need plan.Sizes) plan.Sizes {
	return have.Merge(need, func(have, need uint32) uint32 {
		if need <= have {
			return have
		}
		size := uint32(1)
		for size < need {
			size <<= 1
		}
		return size
	})
}
