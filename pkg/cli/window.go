package cli

import (
	"context"
	"hash/maphash"
	"net/netip"
	"slices"
	"time"

	"github.com/headgate/headgate/pkg/datapath"
	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/plan"
	"github.com/headgate/headgate/pkg/ui"
)

// window is what a browser sees of the node, read as the nouns read it.
type window struct {
	env      *env
	rates    rates
	said     said
	sockets  datapath.SocketList
	node     string              // its name
	services users[plan.Service] // of backends, when the avoided ones were looked for last
	avoided  []uint32            // then
}

func newWindow(e *env) *window { return &window{env: e} }

// Close lets go of what is kept from look to look.
func (w *window) Close() { w.sockets.Close() }

// Status implements ui.Source.
func (w *window) Status(ctx context.Context) (ui.Status, error) {
	s, err := w.env.readStatus(ctx)
	if err != nil {
		return ui.Status{}, err
	}
	w.node = s.Node
	return ui.Status{Node: s.Node, Degraded: s.Degraded, Text: s.screen(time.Now(), w.env.version)}, nil
}

// Look implements ui.Source.
func (w *window) Look(context.Context) (l ui.Look, err error) {
	w.rates.begin(time.Now())
	err = w.env.look(func(r *datapath.Reader) error {
		s := &sight{Reader: r, env: w.env, rates: &w.rates}
		all, err := readServices(s)
		if err != nil {
			return err
		}
		said := w.said.of(w.env)
		l = ui.Look{Services: make([]ui.Service, 0, len(all))}
		for _, b := range r.Backends() {
			l.Backends++
			l.InFlight += uint64(b.InFlight)
		}
		for i := range all {
			l.Services = append(l.Services, all[i].shown(s, said))
		}
		events, _, err := r.Counters()
		if err != nil {
			return err
		}
		l.FailedPerSecond = (*float64)(w.rates.of("backend_failed", events["backend_failed"]))
		l.Avoided, err = w.readAvoided(s)
		return err
	})
	return l, err
}

// shown returns the Service port as the page has it.
func (s *service) shown(r *sight, said *lb.Told) ui.Service {
	if said != nil {
		s.judge(r, said, "")
	}
	return ui.Service{
		Name: s.port.String(), Namespace: s.Namespace, Service: s.Service, Port: s.portName(), Algorithm: s.Algorithm,
		Frontends: s.Frontends, Ready: s.judged.ready(), Backends: s.Backends, Avoided: s.Avoided,
		InFlight: s.InFlight, InFlightShared: s.InFlightShared,
		Connections: s.Connections, Refused: s.Refused,
		PerSecond: (*float64)(s.ConnectionsPerSecond), RefusedPerSecond: (*float64)(s.RefusedPerSecond),
	}
}

// readAvoided returns the backends that clients avoid. Which Service ports these have is read
// when they change.
func (w *window) readAvoided(s *sight) (out []ui.Avoided, err error) {
	var ids []uint32
	for id, b := range s.Backends() {
		if b.Ejected > 0 || b.EjectedByOne > 0 {
			ids = append(ids, id)
		}
	}
	if !slices.Equal(ids, w.avoided) {
		if w.services, err = s.membersOf(); err != nil {
			return nil, err
		}
		w.avoided = ids
	}
	said := w.said.of(w.env)
	for _, id := range ids {
		b := s.Backend(id)
		services := w.services.of(id)
		one := ui.Avoided{Backend: b.At.String(), Services: texts[plan.Service](services).texts(), OneClient: b.Ejected == 0}
		one.Since = time.Now().Add(-max(b.Ejected, b.EjectedByOne)).Truncate(time.Second)
		for _, service := range services {
			if d := said.Of(b.At, service.ServiceName); d != nil {
				one.Pod, one.Node, one.Zone = podName(d), d.Node, d.Zone
				break
			}
		}
		out = append(out, one)
	}
	return out, nil
}

// Explain implements ui.Source.
func (w *window) Explain(ctx context.Context, name, from string) (out []ui.Text, err error) {
	who, err := w.env.asker(from, "")
	if err != nil {
		return nil, ui.BadRequest{Err: err}
	}
	err = w.env.look(func(r *datapath.Reader) error {
		s := &sight{Reader: r, wanted: wanted{word: name}, env: w.env}
		if _, err := s.servicePort(name); err != nil {
			return err
		}
		all, err := explainAll(ctx, s, who)
		out = []ui.Text{}
		for _, x := range all {
			out = append(out, x.rows())
		}
		return err
	})
	return out, err
}

// servicePort returns the ID of a Service port by its full name.
func (s *sight) servicePort(name string) (uint32, error) {
	ids, err := s.Services()
	if err != nil {
		return 0, err
	}
	for id := range ids {
		if port, err := s.Service(id); err != nil || port.String() == name {
			return id, err
		}
	}
	return 0, ui.ErrNoService
}

// Follow implements ui.Source.
func (w *window) Follow(name string) ui.Follower {
	return &follow{window: w, name: name, seed: maphash.MakeSeed()}
}

// follow reads a Service port again and again.
type follow struct {
	*window
	name  string
	rates rates
	seed  maphash.Seed
	all   *lb.Told            // of backends
	local map[netip.Addr]bool // clients whose sockets are on this node
}

// Read implements ui.Follower.
func (f *follow) Read(_ context.Context, each func(ui.Flow)) (d ui.Detail, err error) {
	f.rates.begin(time.Now())
	f.all = f.said.of(f.env)
	err = f.env.look(func(r *datapath.Reader) error {
		s := &sight{Reader: r, env: f.env, rates: &f.rates}
		id, err := s.servicePort(f.name)
		if err != nil {
			return err
		}
		all, err := readSome(s, func(other uint32) bool { return other == id })
		if err != nil {
			return err
		}
		if len(all) == 0 {
			return ui.ErrNoService
		}
		d = ui.Detail{Service: all[0].shown(s, f.all)}
		for _, member := range all[0].ids {
			d.Backends = append(d.Backends, f.backend(s, all[0].port, member))
		}
		d.Unlisted, err = f.readFlows(s, id, each)
		return err
	})
	return d, err
}

// backend returns a backend of a Service port as the page has it.
func (f *follow) backend(s *sight, of plan.Service, id uint32) ui.Backend {
	b := s.Backend(id)
	d := describe(f.all.Of(b.At, of.ServiceName), b.Load)
	return ui.Backend{
		Backend: b.At.String(), Pod: d.Pod, Node: d.Node, Zone: d.Zone, State: d.State, Health: d.health(b.Load), Well: health(b.Load) == healthy,
		InFlight: b.InFlight, ResponseNs: b.Response.Nanoseconds(), AtLeast: b.ResponseAtLeast, Connections: b.Connections,
		PerSecond: (*float64)(f.rates.of(b.At.String(), b.Connections)),
	}
}

// readFlows calls each with what goes to backends of a Service port. It says why those of sockets
// cannot be listed, which takes more rights than to read maps. What is read once more since maps
// grew counts twice, this once.
func (f *follow) readFlows(s *sight, service uint32, each func(ui.Flow)) (unlisted string, err error) {
	err = s.Flows(func(one datapath.Flow) error {
		backend := s.Backend(one.Backend).At
		begins := one.Hook == "in" && one.To != one.NowTo && one.NowTo == netip.AddrPortFrom(backend.Addr, backend.Port)
		if one.Service == service && begins {
			each(f.flow(one.From, backend, 0, one.State))
		}
		return nil
	})
	if err != nil {
		return "", err
	}
	f.local = map[netip.Addr]bool{}
	err = f.sockets.Each(s.Reader, func(one datapath.Socket) error {
		if one.Service == service {
			f.local[one.From.Addr()] = true
			each(f.flow(one.From, lb.AddrPort{Addr: one.Backend.Addr(), Port: one.Backend.Port(), Protocol: one.Protocol}, one.Cookie, one.State))
		}
		return nil
	})
	if err != nil {
		return err.Error(), nil
	}
	return "", nil
}

// flow returns what a client has with a backend.
func (f *follow) flow(from netip.AddrPort, backend lb.AddrPort, cookie uint64, state datapath.FlowState) ui.Flow {
	type key struct {
		from    netip.AddrPort
		backend lb.AddrPort
		cookie  uint64
	}
	open := state == datapath.FlowEstablished || state == datapath.FlowUnconnected
	return ui.Flow{ID: maphash.Comparable(f.seed, key{from, backend, cookie}), Open: open, Client: from.Addr(), Backend: backend.String()}
}

// Client implements ui.Follower. The zone of a client elsewhere is known only where it is a backend
// of some Service, too.
func (f *follow) Client(addr netip.Addr) ui.Client {
	c := ui.Client{Address: addr.String(), Local: f.local[addr]}
	d := f.all.At(addr)
	if d != nil {
		c.Pod, c.Zone = podName(d), d.Zone
	}
	if c.Local && c.Zone == "" {
		c.Zone = f.all.ZoneOf(f.node)
	}
	return c
}
