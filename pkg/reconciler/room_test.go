package reconciler

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/plan"
)

// endpointsEach is how many endpoints Services have of which many come and go.
const endpointsEach = 10

// fleet is Services by number, each with a ClusterIP and endpoints of its own.
func fleet(from, to int) lb.Update {
	u := lb.Update{Services: map[lb.ServiceName]*lb.Service{}, Slices: map[lb.SliceName]*lb.Slice{}}
	for i := from; i < to; i++ {
		name := fmt.Sprint("s-", (i*7919)%10007) // in no order
		service, slice := lb.ServiceName{Namespace: "default", Name: name}, lb.SliceName{Namespace: "default", Name: name}
		s := &lb.Slice{SliceName: slice, Service: name, Ports: []lb.SlicePort{{Protocol: lb.TCP, Port: 8080}}}
		for e := range endpointsEach {
			n := i*endpointsEach + e
			s.Endpoints = append(s.Endpoints, lb.Endpoint{Addr: netip.AddrFrom4([4]byte{10, byte(n >> 16), byte(n >> 8), byte(n)}), Ready: true, Serving: true})
		}
		u.Services[service] = &lb.Service{
			ServiceName: service, ClusterIPs: []netip.Addr{netip.AddrFrom4([4]byte{172, 16, byte(i >> 8), byte(i)})},
			Ports: []lb.ServicePort{{Protocol: lb.TCP, Port: 80}},
		}
		u.Slices[slice] = s
	}
	return u
}

// gone is the end of an update's Services.
func gone(u lb.Update) lb.Update {
	end := lb.Update{Services: map[lb.ServiceName]*lb.Service{}, Slices: map[lb.SliceName]*lb.Slice{}}
	for name := range u.Services {
		end.Services[name] = nil
	}
	for name := range u.Slices {
		end.Slices[name] = nil
	}
	return end
}

// roomFor is the room of maps that hold so many Services and 60 % more.
func roomFor(services uint32) plan.Sizes {
	n := services + services*3/5
	return plan.Sizes{Frontends: n, Slots: n * (endpointsEach + 1), Backends: n * endpointsEach, Services: n, Addresses: n}
}

// graceTakes is how long a grace period takes here.
const graceTakes = 20 * time.Millisecond

// wantFleet checks how many frontends are in force, and how often maps grew.
func (b *bench) wantFleet(t *testing.T, frontends, growths int) {
	t.Helper()
	want(t, "frontends in force", frontends, len(b.dp.content().Frontends))
	want(t, "growths of maps", growths, int(b.dp.grown.Load()))
}

func TestServicesThatComeTakeTheRoomOfThoseThatGo(t *testing.T) {
	for _, n := range []int{500, 1000} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			inBubble(t, &fake{grace: graceTakes, room: roomFor(uint32(n))}, func(t *testing.T, b *bench) {
				b.begin(fleet(0, n))
				b.dp.taken()
				b.Update(gone(fleet(0, n)))
				b.Update(fleet(n, 2*n))
				pass(graceTakes + time.Millisecond)
				want(t, "frontends in force", n, len(b.dp.content().Frontends))
				want(t, "growths of maps", 0, int(b.dp.grown.Load()))
				want(t, "waits in the loop", 0, b.dp.waits())
			})
		})
	}
}

// In a watch each object is an event of its own.
func TestServicesThatComeOneByOneTakeTheRoomOfThoseThatGo(t *testing.T) {
	const n = 200
	inBubble(t, &fake{grace: graceTakes, room: roomFor(n)}, func(t *testing.T, b *bench) {
		b.begin(fleet(0, n))
		for i := range n {
			b.Update(gone(fleet(i, i+1)))
			synctest.Wait()
			b.Update(fleet(n+i, n+i+1))
			synctest.Wait()
		}
		pass(3 * graceTakes)
		b.wantFleet(t, n, 0)
	})
}

func TestMapsGrowWhereNothingGoes(t *testing.T) {
	inBubble(t, &fake{grace: graceTakes, room: roomFor(100)}, func(t *testing.T, b *bench) {
		b.begin(fleet(0, 100))
		b.Update(fleet(100, 200))
		synctest.Wait()
		b.wantFleet(t, 200, 1)
	})
}

func TestMapsGrowWhereWhatGoesIsNotEnough(t *testing.T) {
	inBubble(t, &fake{grace: graceTakes, room: roomFor(100)}, func(t *testing.T, b *bench) {
		b.begin(fleet(0, 100))
		b.Update(gone(fleet(0, 10)))
		b.Update(fleet(100, 300))
		pass(graceTakes + time.Millisecond)
		b.wantFleet(t, 290, 1)
	})
}

func TestServicesThatComeDoNotWaitWhereThereIsRoom(t *testing.T) {
	inBubble(t, &fake{grace: graceTakes, room: roomFor(100)}, func(t *testing.T, b *bench) {
		b.begin(fleet(0, 100))
		b.Update(gone(fleet(0, 60)))
		pass(time.Minute)
		b.Update(gone(fleet(60, 61)))
		b.Update(fleet(100, 180)) // into the holes, and behind them
		synctest.Wait()
		b.wantFleet(t, 119, 0)
		pass(graceTakes)
	})
}

func TestAnyOfTheMapsMayLackRoom(t *testing.T) {
	room := roomFor(1000)
	room.Backends = roomFor(100).Backends
	inBubble(t, &fake{grace: graceTakes, room: room}, func(t *testing.T, b *bench) {
		b.begin(fleet(0, 100))
		b.Update(gone(fleet(0, 100)))
		b.Update(fleet(100, 200))
		pass(graceTakes + time.Millisecond)
		b.wantFleet(t, 100, 0)
	})
}

// A grace period that had begun before they came does not end the wait.
func TestServicesThatComeWhileAGracePeriodPassesTakeTheRoomOfThoseThatGo(t *testing.T) {
	inBubble(t, &fake{grace: graceTakes, room: roomFor(100)}, func(t *testing.T, b *bench) {
		b.begin(fleet(0, 100))
		b.Update(gone(fleet(0, 1)))
		pass(sweepAfter + graceTakes/2)
		b.Update(gone(fleet(1, 100)))
		b.Update(fleet(100, 200))
		pass(2 * graceTakes)
		b.wantFleet(t, 100, 0)
	})
}

func TestServicesDoNotWaitForRoomForEver(t *testing.T) {
	inBubble(t, &fake{grace: graceTakes, room: roomFor(100)}, func(t *testing.T, b *bench) {
		b.begin(fleet(0, 100))
		b.Update(web(1, 1))
		synctest.Wait()
		b.Update(web(1, 2))
		synctest.Wait()
		b.Update(fleet(100, 300))
		for n := range byte(100) { // something goes all the time
			b.Update(web(1, n+2))
			pass(time.Millisecond)
		}
		b.wantFleet(t, 301, 1)
		pass(time.Minute)
	})
}

func TestAnAgentIsReadyWhenAllOfItIsInForce(t *testing.T) {
	dp := inForce(t, fleet(0, 100))
	dp.grace, dp.room = graceTakes, roomFor(100)
	inBubble(t, dp, func(t *testing.T, b *bench) {
		b.begin(fleet(100, 200))
		<-b.Ready()
		want(t, "frontends in force", 100, len(b.dp.content().Frontends))
	})
}

// What has an address of one that goes follows it at once: connections are not to fail meanwhile.
func TestAServiceThatIsRenamedDoesNotWaitForRoom(t *testing.T) {
	inBubble(t, &fake{grace: graceTakes, room: roomFor(2)}, func(t *testing.T, b *bench) {
		b.begin(fleet(0, 3))
		renamed := lb.Update{Services: map[lb.ServiceName]*lb.Service{}, Slices: map[lb.SliceName]*lb.Slice{}}
		for _, s := range fleet(0, 3).Services {
			other := *s
			other.Name = "other-" + s.Name
			renamed.Services[other.ServiceName] = &other
		}
		b.Update(gone(fleet(0, 3)))
		b.Update(renamed)
		synctest.Wait()
		want(t, "frontends in force", 3, len(b.dp.content().Frontends))
	})
}

// Of a large Service each change takes as many slots as it has endpoints, until a sweep.
func TestALargeServiceIsRolled(t *testing.T) {
	for _, c := range []struct {
		name             string
		endpoints, slots int
		grace, within    time.Duration
	}{
		{"where there is room for what waits for slow grace periods no change waits", 5000, 1 << 18, 150 * time.Millisecond, 0},
		{"where there is little none waits longer than for two", 600, 1 << 11, graceTakes, 2 * graceTakes},
	} {
		t.Run(c.name, func(t *testing.T) {
			room := roomFor(uint32(c.endpoints))
			room.Slots = uint32(c.slots)
			inBubble(t, &fake{grace: c.grace, prepares: time.Hour, room: room}, func(t *testing.T, b *bench) {
				begun := largeService(c.endpoints)
				b.begin(begun)
				b.dp.fail = func(call string) error {
					if call == "reserve" && b.dp.grown.Load() > 0 {
						t.Error("maps grow in the loop")
					}
					return nil
				}
				for i := range 150 {
					change := rolled(begun, i)
					b.Update(change)
					synctest.Wait()
					for began := time.Now(); !b.dp.names(change); pass(time.Millisecond) {
						if time.Since(began) > c.within {
							t.Fatalf("change %d is not in force after %v", i, c.within)
						}
					}
					pass(10 * time.Millisecond)
				}
				b.end()
				pass(time.Hour)
			})
		})
	}
}

// largeService is one Service in slices of 100 endpoints.
func largeService(endpoints int) lb.Update {
	u := fleet(0, 1)
	for _, s := range u.Services {
		u.Slices = map[lb.SliceName]*lb.Slice{}
		for i := range endpoints / 100 {
			name := lb.SliceName{Namespace: "default", Name: fmt.Sprintf("%s-%05d", s.Name, i)}
			slice := &lb.Slice{SliceName: name, Service: s.Name, Ports: []lb.SlicePort{{Protocol: lb.TCP, Port: 8080}}}
			for e := range 100 {
				slice.Endpoints = append(slice.Endpoints, lb.Endpoint{Addr: netip.AddrFrom4([4]byte{10, byte(i), 0, byte(e)}), Ready: true, Serving: true})
			}
			u.Slices[name] = slice
		}
	}
	return u
}

// names says whether frontends name every endpoint of an update.
func (f *fake) names(u lb.Update) bool {
	c, named := f.content(), map[netip.Addr]bool{}
	for _, front := range c.Frontends {
		for _, id := range c.Tables[front.Views[lb.Internal].Table] {
			named[c.Backends[id].Addr] = true
		}
	}
	for _, s := range u.Slices {
		for _, e := range s.Endpoints {
			if !named[e.Addr] {
				return false
			}
		}
	}
	return true
}

// rolled gives five endpoints of a large Service other addresses.
func rolled(u lb.Update, change int) lb.Update {
	names := slices.SortedFunc(maps.Keys(u.Slices), func(a, b lb.SliceName) int { return strings.Compare(a.Name, b.Name) })
	name := names[change%len(names)]
	slice := *u.Slices[name]
	slice.Endpoints = slices.Clone(slice.Endpoints)
	for k := range 5 {
		e := (change/len(names)*5 + k) % len(slice.Endpoints)
		a := slice.Endpoints[e].Addr.As4()
		a[2]++
		slice.Endpoints[e].Addr = netip.AddrFrom4(a)
	}
	u.Slices[name] = &slice
	return lb.Update{Slices: map[lb.SliceName]*lb.Slice{name: &slice}}
}
