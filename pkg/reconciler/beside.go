package reconciler

// beside runs beside the loop what takes long: grace periods, searches through sockets and
// tables, what the verifier does. What follows from it is done by the loop. The zero value runs nothing.
type beside struct {
	running int
	ended   chan func() (changed bool)
}

// atOnce is how much may run at a time: one grace period, one telling of sockets, one recount,
// one taking of traffic, one preparation of larger maps or of programs, one removal of flows.
const atOnce = 6

// start calls do beside the loop, which then calls what it returns.
func (b *beside) start(do func() (then func() (changed bool))) {
	b.running++
	go func() { b.ended <- do() }()
}

// finish does what follows from something that has ended, and says whether that may
// have changed what is planned.
func (b *beside) finish(then func() bool) bool {
	b.running--
	return then()
}

// wait finishes everything that runs, and what that starts.
func (b *beside) wait() {
	for b.running > 0 {
		b.finish(<-b.ended)
	}
}
