package ui

import (
	"cmp"
	"context"
	"maps"
	"net/netip"
	"slices"
	"time"
)

// clientsShown is how many clients of a Service port are shown one by one.
const clientsShown = 7

// view is a Service port as the page shows it.
type view struct {
	Service
	State     string    `json:"state"`
	Frontends []string  `json:"frontends"`
	Backends  []Backend `json:"backends"`
	Clients   []Client  `json:"clients"`
	Links     []link    `json:"links"`
	// Estimated says that backends have other Service ports, too, so that which of their new
	// connections are of this one is estimated.
	Estimated bool   `json:"estimated,omitempty"`
	Unlisted  string `json:"unlisted,omitempty"`
}

// link is what goes from a client to a backend, each by its place in the lists.
type link struct {
	Client    int     `json:"client"`
	Backend   int     `json:"backend"`
	Open      int     `json:"open"`      // connections and flows
	PerSecond float64 `json:"perSecond"` // that begin
}

// pair is a client and a backend of it.
type pair struct {
	client  netip.Addr // the zero one for those that nobody has seen
	backend string
}

// Which clients begin connections is seen where these last until a look. That is told as a mean
// over some looks: of each this part is kept to the next, until less than the least is left.
const (
	keptFresh  = 0.8
	leastFresh = 0.01 // in a second
)

// mostlySeen is the part of the connections to a backend that has to be seen for them to stand for
// all: below it the others are shown as those that nobody has seen.
const mostlySeen = 0.75

// followed is a Service port that somebody looks at.
type followed struct {
	Follower
	at    time.Time // of the last look
	view  view
	err   error
	known map[uint64]bool    // flows of the last look, nil where there was none
	fresh map[pair]float64   // flows in a second that were new at the last looks, by age
	begun map[string]float64 // what backends counted meanwhile, likewise
}

// look reads the Service port.
func (f *followed) look(ctx context.Context) (view, error) {
	open, known := map[pair]int{}, make(map[uint64]bool, len(f.known))
	f.age()
	once := 1 / max(time.Since(f.at), lookEvery).Seconds()
	d, err := f.Read(ctx, func(one Flow) {
		p := pair{one.Client, one.Backend}
		if one.Open {
			open[p]++
		}
		known[one.ID] = true
		if f.known != nil && !f.known[one.ID] {
			f.fresh[p] += once
		}
	})
	if err != nil {
		return view{}, err
	}
	if f.known != nil {
		for _, b := range d.Backends {
			f.begun[b.Backend] += value(b.PerSecond)
		}
	}
	f.known = known
	v := view{Service: d.Service, Backends: append([]Backend{}, d.Backends...), Frontends: []string{}, Unlisted: d.Unlisted}
	for _, at := range d.Frontends {
		v.Frontends = append(v.Frontends, at.String())
	}
	v.draw(f, open, split(v.Backends, f.seen(v.scale()), v.scale()))
	return v, nil
}

// age has what was new before count less.
func (f *followed) age() {
	maps.DeleteFunc(f.fresh, func(p pair, n float64) bool {
		f.fresh[p] = n * keptFresh
		return n*keptFresh < leastFresh
	})
	maps.DeleteFunc(f.begun, func(backend string, n float64) bool {
		f.begun[backend] = n * keptFresh
		return n*keptFresh < leastFresh
	})
}

// seen returns which part of what a backend counted was seen, by whose it was: at the same looks, so that of a backend
// that comes back no less is seen than of others. Flows and counters are not read at one moment: it may be more than all.
func (f *followed) seen(scale float64) map[pair]float64 {
	out := make(map[pair]float64, len(f.fresh))
	for p, n := range f.fresh {
		if all := f.begun[p.backend] * scale; all > 0 {
			out[p] = n / all
		}
	}
	return out
}

// scale returns which part of the rates of backends is of this Service port: all of them,
// unless the backends have others, too.
func (v *view) scale() float64 {
	var sum float64
	for _, b := range v.Backends {
		sum += value(b.PerSecond)
	}
	// Counters are not read at one moment.
	own := value(v.PerSecond)
	if sum <= own*1.05+1 {
		return 1
	}
	v.Estimated = true
	return own / sum
}

func value(rate *float64) float64 {
	if rate == nil {
		return 0
	}
	return *rate
}

// split returns how many connections begin in a second, by client and backend: what backends
// count, as far as it was seen whose they are.
func split(backends []Backend, parts map[pair]float64, scale float64) map[pair]float64 {
	seen := map[string]float64{}
	for p, part := range parts {
		seen[p.backend] += part
	}
	out, factors := map[pair]float64{}, map[string]float64{}
	for _, b := range backends {
		rate, part := value(b.PerSecond)*scale, seen[b.Backend]
		factors[b.Backend] = rate
		if part >= mostlySeen {
			factors[b.Backend] = rate / part
		} else if unseen := rate * (1 - part); unseen > 0 {
			out[pair{backend: b.Backend}] = unseen
		}
	}
	for p, part := range parts {
		if rate := part * factors[p.backend]; rate > 0 {
			out[p] = rate
		}
	}
	return out
}

// draw fills in clients and links: those clients that do most, and the others together.
func (v *view) draw(names Follower, open map[pair]int, rates map[pair]float64) {
	places := map[string]int{}
	for i, b := range v.Backends {
		places[b.Backend] = i
	}
	clients := v.drawClients(names, open, rates)
	at := map[[2]int]int{} // links by their ends
	v.Links = []link{}
	of := func(p pair) *link {
		backend, known := places[p.backend]
		if !known { // it has left the Service, and keeps what it has
			backend = len(v.Backends)
			places[p.backend] = backend
			v.Backends = append(v.Backends, Backend{Backend: p.backend, State: "gone", Health: "left the Service"})
		}
		ends := [2]int{clients[p.client], backend}
		if _, there := at[ends]; !there {
			at[ends] = len(v.Links)
			v.Links = append(v.Links, link{Client: ends[0], Backend: ends[1]})
		}
		return &v.Links[at[ends]]
	}
	for p, n := range open {
		of(p).Open += n
	}
	for p, n := range rates {
		of(p).PerSecond += n
	}
	slices.SortFunc(v.Links, func(a, b link) int {
		return cmp.Or(cmp.Compare(a.Client, b.Client), cmp.Compare(a.Backend, b.Backend))
	})
}

// drawClients returns the place of each client.
func (v *view) drawClients(names Follower, open map[pair]int, rates map[pair]float64) map[netip.Addr]int {
	weights := map[netip.Addr]float64{}
	for p, n := range open {
		weights[p.client] += float64(n)
	}
	for p, n := range rates {
		weights[p.client] += n
	}
	all := slices.SortedFunc(maps.Keys(weights), func(a, b netip.Addr) int {
		return cmp.Or(cmp.Compare(weights[b], weights[a]), a.Compare(b))
	})
	places := map[netip.Addr]int{}
	v.Clients = []Client{}
	for i, addr := range all {
		places[addr] = min(i, clientsShown)
		switch {
		case i > clientsShown:
			v.Clients[clientsShown].More++
		case i == clientsShown && len(all) > clientsShown+1:
			v.Clients = append(v.Clients, Client{})
		case addr.IsValid():
			v.Clients = append(v.Clients, names.Client(addr))
		default:
			v.Clients = append(v.Clients, Client{})
		}
	}
	return places
}
