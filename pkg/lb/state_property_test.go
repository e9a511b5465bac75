package lb

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// world is what a State should know, kept in the simplest way.
type world struct {
	services map[ServiceName]*Service
	slices   map[SliceName]*Slice
	node     Node
}

// known is what of a Service can be asked.
type known struct {
	service, slices bool
	frontends       []Frontend
}

// ask looks a Service up by looking at everything.
func (w *world) ask(name ServiceName) (k known) {
	var from []*Slice
	for _, s := range w.slices {
		if s.Service == name.Name && s.Namespace == name.Namespace {
			from = append(from, s)
		}
	}
	svc := w.services[name]
	k.service, k.slices = svc != nil, len(from) > 0
	if svc != nil {
		k.frontends = Frontends(svc, from, w.node)
	}
	return k
}

// randomUpdate changes a few of few objects, and the world with them.
func (w *world) randomUpdate(rng *rand.Rand) Update {
	u := Update{Services: map[ServiceName]*Service{}, Slices: map[SliceName]*Slice{}}
	for range rng.IntN(2) {
		name := ServiceName{"default", serviceNames[rng.IntN(len(serviceNames))]}
		delete(w.services, name)
		if u.Services[name] = nil; rng.IntN(3) > 0 {
			u.Services[name] = randomService(rng, name.Name)
			u.Services[name].Forwarding = Forwarding(rng.IntN(3))
			w.services[name] = u.Services[name]
		}
	}
	for range rng.IntN(3) {
		name := SliceName{"default", fmt.Sprint("slice-", rng.IntN(5))}
		delete(w.slices, name)
		if u.Slices[name] = nil; rng.IntN(3) > 0 {
			u.Slices[name] = randomSlice(rng, name.Name, serviceNames[rng.IntN(len(serviceNames))])
			w.slices[name] = u.Slices[name]
		}
	}
	if rng.IntN(10) == 0 {
		w.node = Node{Name: "node-1", Zone: []string{"", "zone-a", "zone-b"}[rng.IntN(3)]}
		u.Node = &w.node
	}
	return u
}

// serviceNames is one more than there are Services: no slice of "" is anyone's.
var serviceNames = []string{"web", "api", "dns", ""}

// After any sequence of updates the State answers as if it had been told
// everything at once, and it has named every Service whose answer changed.
func TestStateFollowsAnyHistory(t *testing.T) {
	for _, from := range []int{0, 3, cacheFrom} {
		t.Run(fmt.Sprint("cached from ", from), func(t *testing.T) { applyAnyHistory(t, from) })
	}
}

func applyAnyHistory(t *testing.T, cacheFrom int) {
	rng := rand.New(rand.NewPCG(3, 3))
	st := NewState()
	st.cacheFrom = cacheFrom
	w := &world{services: map[ServiceName]*Service{}, slices: map[SliceName]*Slice{}}
	before := map[ServiceName]known{}
	for step := range 1500 {
		u := w.randomUpdate(rng)
		dirty := st.Apply(u)
		if !slices.IsSortedFunc(dirty, ServiceName.Compare) {
			t.Fatalf("step %d: names out of order: %v", step, dirty)
		}
		for _, n := range serviceNames[:3] {
			name := ServiceName{"default", n}
			want := w.ask(name)
			service, slice := st.Seen(name)
			got := known{service, slice, st.Frontends(name)}
			if !sameKnown(want, got) {
				t.Fatalf("step %d: %s is %v, want %v", step, name, got, want)
			}
			if !sameKnown(want, before[name]) && !slices.Contains(dirty, name) {
				t.Fatalf("step %d: %s changed unnoticed", step, name)
			}
			before[name] = want
		}
		if again := st.Apply(u); len(again) > 0 {
			t.Fatalf("step %d: the same update again changes %v", step, again)
		}
	}
}

// sameKnown says whether two answers are equal.
func sameKnown(a, b known) bool {
	return a.service == b.service && a.slices == b.slices && sameFrontends(a.frontends, b.frontends)
}
