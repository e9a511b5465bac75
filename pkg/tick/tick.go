// Package tick says when the parts of a process look again at what no event tells them:
// all at the same moments, so that the process wakes once for all of them.
package tick

import "time"

// Next returns how long it takes until the clock shows the next multiple of a period.
func Next(period time.Duration) time.Duration {
	now := time.Now()
	wait := now.Truncate(period).Add(period).Sub(now)
	if wait < period/16 { // the timer before was early by this clock, or something took long
		wait += period
	}
	return wait
}
