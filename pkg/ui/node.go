package ui

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"time"
)

// Whoever looks sees what was read so long ago at the most: pages ask each second, and
// several may be open.
const (
	lookEvery   = 900 * time.Millisecond
	statusEvery = 5 * time.Second
)

// followFor is how long a Service port is followed that nobody looks at any more.
const followFor = 30 * time.Second

// troubleFor is how long a Service port that refused somebody stands among those in trouble.
const troubleFor = 30 * time.Second

// The states of a Service port, the worst first.
const (
	stateRefusing = "refusing" // it refused somebody a short while ago
	stateAvoided  = "avoided"  // some backends are
	stateEmpty    = "empty"    // no backend is ready
	stateWell     = "well"
)

var states = []string{stateRefusing, stateAvoided, stateEmpty, stateWell}

// node keeps what was read last, for all who look.
type node struct {
	turn   chan struct{} // has room for one: one reads at a time
	source Source
	status struct {
		at   time.Time
		read Status
		err  error
	}
	looked struct {
		at    time.Time
		read  Look
		texts []string // by Service port, what a search looks at; nil before the first search
		err   error
	}
	refused  map[string]time.Time // Service ports that refuse, and when they did last
	events   events
	followed map[string]*followed
}

func newNode(source Source) *node {
	return &node{turn: make(chan struct{}, 1), source: source, refused: map[string]time.Time{}, followed: map[string]*followed{}}
}

// take waits until nobody else reads, or whoever asks has gone. What is read is kept for others, too: so it is read
// with the context that is returned, which does not end with whoever asks.
func (n *node) take(ctx context.Context) (forAll context.Context, err error) {
	select {
	case n.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if err := ctx.Err(); err != nil { // gone while others were read for
		n.leave()
		return nil, err
	}
	return context.WithoutCancel(ctx), nil
}

// leave lets another one read.
func (n *node) leave() { <-n.turn }

// overview is the node as a whole.
type overview struct {
	Status
	Services         int       `json:"services"`
	Backends         int       `json:"backends"`
	Avoided          []Avoided `json:"avoided"`
	InFlight         uint64    `json:"inFlight"`
	PerSecond        *float64  `json:"perSecond,omitempty"`
	RefusedPerSecond *float64  `json:"refusedPerSecond,omitempty"`
	FailedPerSecond  *float64  `json:"failedPerSecond,omitempty"`
	Trouble          int       `json:"trouble"` // Service ports that are not well
	Events           []event   `json:"events"`  // the youngest first
}

// overview returns how the node is.
func (n *node) overview(ctx context.Context) (overview, error) {
	ctx, err := n.take(ctx)
	if err != nil {
		return overview{}, err
	}
	defer n.leave()
	look, err := n.look(ctx)
	if err != nil {
		return overview{}, err
	}
	if s := &n.status; time.Since(s.at) >= statusEvery {
		s.read, s.err = n.source.Status(ctx)
		s.at = time.Now()
	}
	o := overview{
		Status: n.status.read, Services: len(look.Services), Backends: look.Backends, FailedPerSecond: look.FailedPerSecond, InFlight: look.InFlight,
		Avoided: append([]Avoided{}, look.Avoided...), Events: n.events.youngest(),
	}
	for i := range look.Services {
		s := &look.Services[i]
		add(&o.PerSecond, s.PerSecond)
		add(&o.RefusedPerSecond, s.RefusedPerSecond)
		if n.stateOf(s) != stateWell {
			o.Trouble++
		}
	}
	return o, n.status.err
}

// add adds a rate to a sum, which is nil as long as no rate is known.
func add(sum **float64, rate *float64) {
	if rate == nil {
		return
	}
	if *sum == nil {
		*sum = new(float64)
	}
	**sum += *rate
}

// look returns what is in force, as of less than a second ago.
func (n *node) look(ctx context.Context) (*Look, error) {
	l := &n.looked
	if time.Since(l.at) < lookEvery {
		return &l.read, l.err
	}
	l.read, l.err = n.source.Look(ctx)
	l.texts = nil
	l.at = time.Now()
	if l.err != nil {
		return &l.read, l.err
	}
	n.events.note(l.at, l.read.Avoided)
	for i := range l.read.Services {
		if s := &l.read.Services[i]; value(s.RefusedPerSecond) > 0 {
			n.refused[s.Name] = l.at
		}
	}
	maps.DeleteFunc(n.refused, func(_ string, at time.Time) bool { return l.at.Sub(at) >= troubleFor })
	return &l.read, nil
}

func (n *node) stateOf(s *Service) string {
	_, refusing := n.refused[s.Name]
	switch {
	case refusing:
		return stateRefusing
	case s.Avoided > 0:
		return stateAvoided
	case s.Backends == 0 || s.ready() == 0:
		return stateEmpty
	default:
		return stateWell
	}
}

// query is which Service ports are asked for.
type query struct {
	search     string // words that all are in the name, or in an address
	sort       string // one of orders
	descending bool
	from       int
	count      int
}

// page is some Service ports of those that are asked for.
type page struct {
	Total   int   `json:"total"`   // in force
	Matched int   `json:"matched"` // of these
	From    int   `json:"from"`
	Rows    []row `json:"rows"`
}

// row is a Service port in a list.
type row struct {
	*Service
	State string `json:"state"`
}

// services returns some Service ports.
func (n *node) services(ctx context.Context, q query) (page, error) {
	ctx, err := n.take(ctx)
	if err != nil {
		return page{}, err
	}
	defer n.leave()
	look, err := n.look(ctx)
	if err != nil {
		return page{}, err
	}
	words := strings.Fields(strings.ToLower(q.search))
	rows := make([]row, 0, len(look.Services))
	for i := range look.Services {
		if len(words) == 0 || containsAll(n.searchTexts()[i], words) {
			s := &look.Services[i]
			rows = append(rows, row{s, n.stateOf(s)})
		}
	}
	order := orders[q.sort]
	slices.SortStableFunc(rows, func(a, b row) int {
		c := order(a, b)
		if q.descending {
			c = -c
		}
		return cmp.Or(c, byName(a, b))
	})
	p := page{Total: len(look.Services), Matched: len(rows), From: min(q.from, len(rows))}
	p.Rows = rows[p.From:min(p.From+q.count, len(rows))]
	return p, nil
}

// searchTexts returns, by Service port, what words are looked for in: name and addresses in lower case, a
// line each.
func (n *node) searchTexts() []string {
	l := &n.looked
	if l.texts != nil {
		return l.texts
	}
	l.texts = make([]string, len(l.read.Services))
	for i := range l.read.Services {
		s := &l.read.Services[i]
		lines := []string{s.Name}
		for _, at := range s.Frontends {
			lines = append(lines, at.String())
		}
		l.texts[i] = strings.ToLower(strings.Join(lines, "\n"))
	}
	return l.texts
}

// containsAll says whether each word is in a text.
func containsAll(text string, words []string) bool {
	return !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(text, w) })
}

func byName(a, b row) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Service.Service, b.Service.Service), cmp.Compare(a.Port, b.Port))
}

// orders are what Service ports are sorted by. What is not known comes first.
var orders = map[string]func(a, b row) int{
	"state": func(a, b row) int {
		return cmp.Compare(slices.Index(states, a.State), slices.Index(states, b.State))
	},
	"name": byName,
	"backends": func(a, b row) int {
		return cmp.Or(cmp.Compare(a.ready(), b.ready()), cmp.Compare(a.Backends, b.Backends))
	},
	"connections": func(a, b row) int { return cmp.Compare(value(a.PerSecond), value(b.PerSecond)) },
	"in-flight":   func(a, b row) int { return cmp.Compare(a.InFlight, b.InFlight) },
	"refused": func(a, b row) int {
		return cmp.Or(cmp.Compare(value(a.RefusedPerSecond), value(b.RefusedPerSecond)), cmp.Compare(a.Refused, b.Refused))
	},
}

// service returns a Service port, which is followed from now on.
func (n *node) service(ctx context.Context, name string) (view, error) {
	ctx, err := n.take(ctx)
	if err != nil {
		return view{}, err
	}
	defer n.leave()
	now := time.Now()
	maps.DeleteFunc(n.followed, func(_ string, f *followed) bool { return now.Sub(f.at) >= followFor })
	f := n.followed[name]
	if f == nil {
		f = &followed{Follower: n.source.Follow(name), fresh: map[pair]float64{}, begun: map[string]float64{}}
		n.followed[name] = f
	}
	if now.Sub(f.at) >= lookEvery {
		f.view, f.err = f.look(ctx)
		f.at = now
	}
	if f.err != nil {
		delete(n.followed, name)
		return view{}, f.err
	}
	v := f.view
	v.State = n.stateOf(&v.Service)
	return v, nil
}

func (n *node) explain(ctx context.Context, service, from string) ([]Text, error) {
	if _, err := n.take(ctx); err != nil { // whose answer is kept for nobody else
		return nil, err
	}
	defer n.leave()
	return n.source.Explain(ctx, service, from)
}
