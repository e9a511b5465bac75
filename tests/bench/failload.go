package main

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"
)

// What clients of drills put up with.
const (
	clientTimeout = 3 * time.Second        // after that they have failed
	slowFrom      = 250 * time.Millisecond // from here on they were slow
)

// arrivals is an open loop: connections begin at their times, however long others
// take, and time counts from when they were due.
type arrivals struct {
	to   netip.AddrPort
	rate int // connections in a second
	took time.Duration
}

// outcomes are what became of connections.
type outcomes struct {
	answered []int64       // ns
	by       [failPods]int // the same, by the pod that answered
	failed   int
	slow     int // of those answered
}

// run opens connections and waits for the last one to end.
func (a arrivals) run(ctx context.Context) outcomes {
	var (
		out  outcomes
		mu   sync.Mutex
		wait sync.WaitGroup
	)
	began := time.Now()
	for i := range int(a.took.Seconds() * float64(a.rate)) {
		due := began.Add(time.Duration(i) * time.Second / time.Duration(a.rate))
		time.Sleep(time.Until(due))
		if ctx.Err() != nil {
			break
		}
		wait.Go(func() {
			pod, err := ask(a.to, due)
			took := time.Since(due)
			mu.Lock()
			defer mu.Unlock()
			out.note(took, pod, err)
		})
	}
	wait.Wait()
	return out
}

func (o *outcomes) note(took time.Duration, pod int, err error) {
	if err != nil {
		o.failed++
		return
	}
	o.answered = append(o.answered, int64(took))
	o.by[pod]++
	if took >= slowFrom {
		o.slow++
	}
}

// p99 is in ms, of the connections that were answered.
func (o *outcomes) p99() float64 {
	if len(o.answered) == 0 {
		return 0
	}
	return percentile(o.answered, 0.99) / 1e6
}

// ask connects, sends a byte and waits for the one that every server sends: it says
// which pod it is.
func ask(to netip.AddrPort, due time.Time) (pod int, err error) {
	deadline := due.Add(clientTimeout)
	c, err := (&net.Dialer{Deadline: deadline}).Dial("tcp4", to.String())
	if err != nil {
		return 0, err
	}
	defer c.Close()
	if err := c.(*net.TCPConn).SetLinger(0); err != nil { // no port has to wait
		return 0, err
	}
	if err := c.SetDeadline(deadline); err != nil {
		return 0, err
	}
	answer := []byte{0}
	if _, err := c.Write(answer); err != nil {
		return 0, err
	}
	if _, err := c.Read(answer); err != nil {
		return 0, err
	}
	if int(answer[0]) >= failPods {
		return 0, fmt.Errorf("pod %d answers, of %d", answer[0], failPods)
	}
	return int(answer[0]), nil
}
