package cli

// healths is how some backends are.
type healths struct {
	all, ready, ejected, draining int
	inFlight                      uint32
	began, inZone                 rate
	places                        []place // one for each backend
}

// healthOf returns how the backends of a Service port are.
func (l *trafficLook) healthOf(s *service) (h healths) {
	h.places = make([]place, len(s.ids))
	for i, id := range s.ids {
		if id < uint32(len(l.backends)) {
			b := &l.backends[id]
			h.places[i] = l.placeOf(b, s)
			h.add(b, h.places[i])
		}
	}
	return h
}

func (h *healths) add(b *trafficBackend, p place) {
	h.all++
	h.inFlight += b.inFlight
	if b.known {
		h.began += b.began
		if p.inZone {
			h.inZone += b.began
		}
	}
	switch p.standing {
	case standsUnknown:
	case standsReady:
		h.ready++
	case standsDraining:
		h.draining++
	case standsEjected:
		h.ejected++
	}
}

// judge takes what is said of the backends.
func (t *traffic) judge(l *trafficLook, h healths) {
	t.Backends, t.Avoided, t.places = h.all, h.ejected, h.places
	if l.described {
		t.Ready, t.Draining = &h.ready, &h.draining
	}
	if l.zone != "" && h.began > 0 {
		t.InZone = new(percent(100 * h.inZone / h.began))
	}
}

// total returns what all of some Service ports have. A backend of several counts once.
func (l *trafficLook) total(of []item) *traffic {
	out := &traffic{service: &service{}}
	best, seen, h := make([]place, len(l.backends)), make([]bool, len(l.backends)), healths{}
	for _, one := range of {
		t := one.(*traffic)
		for i, p := range t.places {
			id := t.ids[i]
			if id >= uint32(len(seen)) {
				continue
			}
			if !seen[id] || p.standing > best[id].standing {
				seen[id], best[id] = true, p
			}
		}
		out.ConnectionsPerSecond = plus(out.ConnectionsPerSecond, t.ConnectionsPerSecond)
		out.RefusedPerSecond = plus(out.RefusedPerSecond, t.RefusedPerSecond)
		out.trafficRates = out.plus(t.trafficRates)
		for reason, n := range t.RefusedByReason {
			if out.RefusedByReason == nil {
				out.RefusedByReason = map[string]rate{}
			}
			out.RefusedByReason[reason] += n
		}
	}
	for id := range seen {
		if seen[id] {
			h.add(&l.backends[id], best[id])
		}
	}
	out.judge(l, h)
	out.InFlight = h.inFlight
	return out
}

// plus adds rates, of which one may not be known.
func plus(a, b *rate) *rate {
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	default:
		return new(*a + *b)
	}
}
