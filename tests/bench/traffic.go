package main

import "path/filepath"

// traffic measures what it costs to count the traffic of sockets, beside the same programs with
// counting compiled out: of a connection the program at its end, and all of it.
func (b *bench) traffic() error {
	t := table{
		Title:  "Counting bytes and connect times of a TCP connection",
		Note:   "Run time of sock_release by the kernel's statistics, in ns: means of batches, median of rounds, which are interleaved.",
		Header: []string{"family", "not counted", "counted", "added", "quartiles"},
	}
	for _, f := range []flavour{tcp4, tcp6} {
		counted, err := b.product(f, 1, 10)
		if err != nil {
			return err
		}
		not, err := b.uncounted(f)
		if err != nil {
			return err
		}
		bare, err := b.bare()
		if err != nil {
			return err
		}
		maker, err := b.newMaker(f, bare)
		if err != nil {
			return err
		}
		var runners []*runner
		for _, g := range []*group{not, counted} {
			to := newTargets(f.service, 1, servicePort)
			runners = append(runners, &runner{
				name: "sock_release, " + f.name, program: g.programs["sock_release"],
				kase: &kase{group: g, n: b.plan.tcpCalls, op: lifeTCP(to, maker.listeners, backendPort)},
			})
		}
		if err := b.countAllRuns(runners); err != nil {
			return err
		}
		plus := added(runners[1].ns, runners[0].ns)
		b.report.add("traffic/"+f.key+"/added", "ns", plus)
		t.row(f.name, ns(summary(runners[0].ns)), ns(summary(runners[1].ns)), ns(plus), spread(plus))
	}
	b.report.table(t)
	return nil
}

// uncounted returns a group with a Service whose traffic is not counted.
func (b *bench) uncounted(f flavour) (*group, error) {
	g, err := b.newGroup("uncounted-" + f.key)
	if err != nil {
		return nil, err
	}
	g.root = filepath.Join(b.bpffs, "uncounted-"+f.key)
	cfg := g.config(nil)
	cfg.Traffic = false
	if err := fillWith(cfg, f, 1, 10); err != nil {
		return nil, err
	}
	return g, g.openPinned()
}
