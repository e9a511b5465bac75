package network

import (
	"bufio"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"
)

// outcome is what became of connections.
type outcome struct {
	mu                             sync.Mutex
	answered, reset, stuck, failed int
	moved                          int // answered by another pod than before
	hidden                         int // answered by a pod that did not see the client's address
	missing                        int // datagrams without an answer
	began                          time.Time
	broken                         []time.Duration // since then, one for each flow that broke
}

func (o *outcome) String() string {
	return fmt.Sprintf("%d answers, %d datagrams without one, of flows: %d reset, %d stuck, %d failed otherwise, %d at another backend, %d with a hidden client", o.answered, o.missing, o.reset, o.stuck, o.failed, o.moved, o.hidden)
}

// stuckAfter is how long an answer may take: TCP sends again meanwhile.
const stuckAfter = 30 * time.Second

// converse asks over one connection until it is told to end, and notes what happens.
func (o *outcome) converse(conn net.Conn, pause time.Duration, end <-chan struct{}) {
	defer conn.Close()
	r, first := bufio.NewReader(conn), ""
	for {
		_ = conn.SetDeadline(time.Now().Add(stuckAfter))
		_, err := fmt.Fprintln(conn, "who")
		line := ""
		if err == nil {
			line, err = r.ReadString('\n')
		}
		if !o.note(line, &first, err) {
			return
		}
		select {
		case <-end:
			return
		case <-time.After(pause + rand.N(pause/2)):
		}
	}
}

// missingMost is how many datagrams in a row may have no answer, each of them for a second.
const missingMost = 10

// send does so by datagrams with sequence numbers, of which some may be lost.
func (o *outcome) send(conn net.Conn, pause time.Duration, end <-chan struct{}) {
	defer conn.Close()
	first, missing := "", 0
	for number := 0; ; number++ {
		said, err := askNumbered(conn, fmt.Sprint("number ", number))
		if missing++; err == nil {
			missing = 0
		}
		switch {
		case err == nil || missing == missingMost:
			if !o.note(said, &first, err) {
				return
			}
		default:
			o.mu.Lock()
			o.missing++
			o.mu.Unlock()
		}
		select {
		case <-end:
			return
		case <-time.After(pause + rand.N(pause/2)):
		}
	}
}

// askNumbered sends a datagram, and returns what a server puts before it in the answer.
func askNumbered(conn net.Conn, payload string) (string, error) {
	_ = conn.SetDeadline(time.Now().Add(time.Second))
	if _, err := conn.Write([]byte(payload)); err != nil {
		return "", err
	}
	for b := make([]byte, 256); ; {
		n, err := conn.Read(b)
		if err != nil {
			return "", err
		}
		if said, is := strings.CutSuffix(string(b[:n]), " "+payload); is { // others are late
			return said + "\n", nil
		}
	}
}

// begin notes that changes begin, while connections are under way.
func (o *outcome) begin() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.began = time.Now()
}

// note says whether the connection goes on.
func (o *outcome) note(line string, first *string, err error) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if err != nil || *first != "" && line != *first {
		o.broken = append(o.broken, time.Since(o.began))
	}
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		o.stuck++
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		o.reset++
	case err != nil:
		o.failed++
	case *first == "" && !strings.HasSuffix(line, " "+clientAddr[0].String()+"\n"):
		o.hidden++
		fallthrough
	default:
		if o.answered++; *first != "" && line != *first {
			o.moved++
			return false
		}
		*first = line
		return true
	}
	return false
}
