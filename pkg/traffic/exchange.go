package traffic

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// exchange talks to one target of a job, count times, and accounts for each.
type exchange func(w *worker, target, count int)

var exchanges = map[Kind]exchange{
	TCP:            (*worker).tcp,
	UDPConnected:   (*worker).udpConnected,
	UDPUnconnected: (*worker).udpUnconnected,
	Connect:        (*worker).connect,
}

func (w *worker) tcp(target, _ int) {
	name, err := w.readName(target)
	if err != nil {
		w.failed(target, 1, err)
		return
	}
	w.answered(target, name)
}

func (w *worker) readName(target int) (string, error) {
	s, err := openSocket(w.job.Targets[target], unix.SOCK_STREAM, w.job.Timeout)
	if err != nil {
		return "", err
	}
	defer s.close()
	if err := s.connect(); err != nil {
		return "", err
	}
	if err := s.checkPeer(); err != nil {
		return "", err
	}
	n, err := s.readAll(w.buffer[:])
	if err != nil {
		return "", err
	}
	if n == 0 {
		return "", errors.New("read: closed without an answer")
	}
	return string(w.buffer[:n]), nil
}

func (w *worker) udpConnected(target, _ int) {
	s, err := openSocket(w.job.Targets[target], unix.SOCK_DGRAM, w.job.Timeout)
	if err != nil {
		w.failed(target, 1, err)
		return
	}
	defer s.close()
	if err = s.connect(); err == nil {
		err = s.checkPeer()
	}
	if err != nil {
		w.failed(target, 1, err)
		return
	}
	w.ask(s, target, true)
}

func (w *worker) udpUnconnected(target, count int) {
	s, err := openSocket(w.job.Targets[target], unix.SOCK_DGRAM, w.job.Timeout)
	if err != nil {
		w.failed(target, count, err)
		return
	}
	defer s.close()
	for range count {
		w.ask(s, target, false)
	}
}

// ask sends a datagram that nobody else sends and waits for its answer.
func (w *worker) ask(s socket, target int, connected bool) {
	payload := strconv.FormatInt(time.Now().UnixNano(), 36)
	name, err := w.questionAndAnswer(s, payload, connected)
	if err != nil {
		w.failed(target, 1, err)
		return
	}
	w.answered(target, name)
}

func (w *worker) questionAndAnswer(s socket, payload string, connected bool) (string, error) {
	if err := s.send([]byte(payload), connected); err != nil {
		return "", err
	}
	for {
		n, err := s.receive(w.buffer[:])
		if err != nil {
			return "", err
		}
		name, echo, found := strings.Cut(string(w.buffer[:n]), " ")
		if !found {
			return "", fmt.Errorf("receive: not an answer: %.20q", w.buffer[:n])
		}
		if echo == payload {
			return name, nil
		}
		// The late answer to a question that timed out before.
	}
}

func (w *worker) connect(target, _ int) {
	s, err := openSocket(w.job.Targets[target], unix.SOCK_STREAM, w.job.Timeout)
	if err != nil {
		w.failed(target, 1, err)
		return
	}
	defer s.close()
	before := time.Now()
	err = s.connect()
	took := time.Since(before)
	if err != nil {
		w.failed(target, 1, err)
		return
	}
	w.result.Nanos = append(w.result.Nanos, took.Nanoseconds())
	s.reset()
}
