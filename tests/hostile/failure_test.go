package hostile_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"sort"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// shownFailures is how many failures are printed one by one.
const shownFailures = 100

// failure is an outcome that must not be.
type failure struct {
	*talker
	outcome
}

// judge ends all talk and looks at what failed.
func (d *drill) judge(t *testing.T) {
	t.Helper()
	made, rounds, lost, ended, kinds := 0, 0, 0, map[string]int{}, map[string]int{}
	var worst time.Duration
	var failures []failure
	for _, talker := range d.talkers {
		for _, o := range talker.finish(t) {
			made, rounds = made+1, rounds+o.Rounds
			if o.Kind == "" {
				worst = max(worst, o.First)
			}
			switch o.Kind = d.wrong(talker, o); {
			case o.Kind == "":
			case lost < d.mayLose && o.Protocol == unix.SOCK_DGRAM && o.Kind == "timed out":
				lost++
			case d.endedWithBackend(talker, o):
				ended[fmt.Sprintf("%s %s: %s", talker.who, talker.protocol, o.Kind)]++
			default:
				kinds[o.Kind]++
				failures = append(failures, failure{talker, o})
			}
		}
	}
	t.Logf("%d connections with %d rounds, the slowest first answer took %v, %d datagrams lost; ended with the backend that was withdrawn: %v", made, rounds, worst, lost, ended)
	t.Logf("%s", d.told())
	if made == 0 {
		t.Error("no connection was made")
	}
	if len(failures) > 0 {
		t.Errorf("%d failed: %v\n%s", len(failures), kinds, d.table(failures))
	}
	if log := d.agent.Log.String(); strings.Contains(log, "inconsistent") {
		t.Error("an agent found maps that it could not take over")
	}
}

// finish ends the process and returns what came of its conversations.
func (k *talker) finish(t *testing.T) (all []outcome) {
	t.Helper()
	_ = k.in.Close()
	if err := k.cmd.Wait(); err != nil {
		t.Errorf("%s talks to %s: %v", k.who, k.to, err)
	}
	for in := json.NewDecoder(strings.NewReader(k.said.String())); ; {
		var o outcome
		if err := in.Decode(&o); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, o)
	}
}

// wrong says what is wrong with an outcome, "" for nothing: what failed, or an answer of
// a server that is not of the Service, or was known to be gone before the client asked.
func (d *drill) wrong(k *talker, o outcome) string {
	servers := []string{"web-1", "web-2", "tenant"}
	if k.service == &steady {
		servers = servers[:2]
	}
	switch {
	case o.Kind != "":
		return o.Kind
	case !slices.Contains(servers, o.Name):
		return "answered by a stranger"
	case o.Protocol == unix.SOCK_STREAM && o.Name == "tenant" && d.knownGone(o.Began):
		return "answered by a backend that was gone"
	}
	return ""
}

// knownGone says whether an agent had read before that the third backend is gone.
func (d *drill) knownGone(at time.Time) bool {
	next := sort.Search(len(d.changes), func(i int) bool { return d.changes[i].written.After(at) })
	if next == 0 {
		return false
	}
	c := d.changes[next-1]
	return !c.present && !c.known.IsZero() && c.known.Before(at)
}

// endedWithBackend says whether a failure is due: of a connection to the backend that was
// withdrawn while it stood, from a Service where none drains. TCP is ended at once, a
// datagram goes to another backend.
func (d *drill) endedWithBackend(k *talker, o outcome) bool {
	due := o.Kind == "aborted" || o.Kind == "reset" || o.Kind == "wrong answer" && o.Protocol == unix.SOCK_DGRAM
	return k.service == &abrupt && due && (o.Name == "tenant" || o.Name == "" && d.heardOf(o)) && d.withdrawnDuring(o)
}

// heardOf says whether the third backend was sent what begins a conversation.
func (d *drill) heardOf(o outcome) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.ContainsFunc(d.heard[visitor{o.Protocol, o.Local}], func(at time.Time) bool {
		return at.After(o.Began) && at.Before(o.Ended.Add(time.Second))
	})
}

// withdrawnDuring says whether the third backend may have been withdrawn during a conversation:
// it lasted into a time that begins with a withdrawal, and ends a second after an agent
// has read that the backend is back.
func (d *drill) withdrawnDuring(o outcome) bool {
	var since time.Time
	for _, c := range d.changes {
		switch {
		case !c.present && since.IsZero():
			since = c.written
		case c.present && !c.known.IsZero() && !since.IsZero():
			if o.Ended.After(since) && o.Began.Before(c.known.Add(time.Second)) {
				return true
			}
			since = time.Time{}
		}
	}
	return !since.IsZero() && o.Ended.After(since)
}

// told says what became of the agents, and what the datapath has refused.
func (d *drill) told() string {
	ready := 0
	for _, l := range d.lives {
		if !l.ready.IsZero() {
			ready++
		}
	}
	s := d.agent.Status()
	return fmt.Sprintf("%d of %d agents were ready before they were killed; %d frontends, refusals %v", ready, len(d.lives), s.Frontends, s.Drops)
}

// table shows failures beside the kills.
func (d *drill) table(failures []failure) string {
	slices.SortFunc(failures, func(a, b failure) int { return a.Ended.Compare(b.Ended) })
	var b strings.Builder
	for _, f := range failures[:min(len(failures), shownFailures)] {
		fmt.Fprintf(&b, "%9.3f s: %s %s %s from %s, by %q, %d rounds in %v: %s (%s); %s\n", f.Ended.Sub(d.began).Seconds(), f.who, f.protocol, f.to, f.Local,
			f.Name, f.Rounds, f.Ended.Sub(f.Began).Round(time.Millisecond), f.Kind, f.Error, d.beside(f.Ended))
	}
	return b.String()
}

// beside says what has happened before a moment.
func (d *drill) beside(at time.Time) string {
	ago := func(what string, then time.Time) string {
		return fmt.Sprintf(", %s %v ago", what, at.Sub(then).Round(time.Millisecond))
	}
	next := sort.Search(len(d.lives), func(i int) bool { return d.lives[i].killed.After(at) })
	said := fmt.Sprint("kills: ", next)
	if next > 0 {
		l := d.lives[next-1]
		said += ago("the last", l.killed) + ago("launched", l.launched)
		if l.upgrade != "" {
			said += ", more or less " + l.upgrade
		}
		if !l.ready.IsZero() {
			said += ago("ready", l.ready)
		}
	}
	if c := sort.Search(len(d.changes), func(i int) bool { return d.changes[i].written.After(at) }); c > 0 {
		said += ago(map[bool]string{true: "backend back", false: "backend withdrawn"}[d.changes[c-1].present], d.changes[c-1].written)
	}
	return said
}
