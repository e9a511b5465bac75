package contender

import (
	"errors"
	"slices"
	"time"

	"github.com/headgate/headgate/pkg/traffic/result"
)

// mostChurned is how many Services churn goes through, besides the one that comes
// and goes.
const mostChurned = 100

// comesAndGoes is n if each n-th change is a Service that comes or goes. The
// others are an endpoint that begins to terminate, or is ready again.
const comesAndGoes = 10

// churned returns the numbers of the Services that change: as far apart as it
// goes, and never the asked one.
func churned(services int) []int {
	var numbers []int
	for i := range min(services, mostChurned+1) {
		if number := i * services / min(services, mostChurned+1); number != asked(services) {
			numbers = append(numbers, number)
		}
	}
	return numbers[:min(len(numbers), mostChurned)]
}

// Churn changes Services so many times a second, evenly, until stop is called,
// which undoes it and says how many changes there were. Without load balancer
// nothing is changed, and rules are written at most once in a syncPeriod. Servers
// answer on every address all the time.
func (p *Contender) Churn(rate float64) (stop func() (*result.Churn, error)) {
	if p.Spec.Name == Direct {
		return func() (*result.Churn, error) { return nil, nil }
	}
	end, done := make(chan struct{}), make(chan struct{})
	churn := &result.Churn{Rate: rate}
	var last *batch
	began := time.Now()
	go func() {
		defer close(done)
		for {
			due := began.Add(time.Duration(float64(churn.Changes+1) / rate * float64(time.Second)))
			timer := time.NewTimer(time.Until(due))
			select {
			case <-end:
				timer.Stop()
				churn.Elapsed = time.Since(began)
				return
			case <-timer.C:
			}
			last = p.changeOne(int(churn.Changes))
			churn.Changes++
		}
	}()
	return func() (*result.Churn, error) {
		close(end)
		<-done
		var err error
		if last != nil {
			err = last.wait()
		}
		return churn, errors.Join(err, p.endChurn())
	}
}

// changeOne makes the n-th change: Services in turn, an endpoint leaves each of
// them and comes back in the next turn.
func (p *Contender) changeOne(n int) *batch {
	if n%comesAndGoes == comesAndGoes-1 {
		return p.changes.edit(p.Spec.Services, func(v *version) { v.deleted = !v.deleted })
	}
	numbers := churned(p.Spec.Services)
	return p.changes.edit(numbers[n%len(numbers)], func(v *version) {
		v.members[0].is = terminating - v.members[0].is // the other of the two
	})
}

// endChurn makes the Services what they were.
func (p *Contender) endChurn() error {
	var last *batch
	for _, number := range slices.Concat(churned(p.Spec.Services), []int{p.Spec.Services}) {
		last = p.changes.edit(number, func(v *version) {
			v.deleted, v.members[0].is = number == p.Spec.Services, ready
		})
	}
	return last.wait()
}
