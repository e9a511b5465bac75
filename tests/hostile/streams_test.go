package hostile_test

import (
	"context"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/headgate/headgate/pkg/traffic/raw"
	words "github.com/headgate/headgate/pkg/traffic/wire"
)

// pairsOfDatagrams is no attack: clients outside send two datagrams by each of their
// sockets, one after the other, while other datagrams keep a CPU busy. Both must come to
// one backend.
func pairsOfDatagrams(ctx context.Context, s *stage, got *row) {
	s.do("web-1", func() error { // where the flood below ends, unread
		c, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(web1Addr, 9999)))
		if err == nil {
			s.tb.Cleanup(func() { _ = c.Close() })
		}
		return err
	})
	var flows, moved atomic.Int64
	var all sync.WaitGroup
	all.Go(func() {
		_, err := raw.Run(ctx, raw.Spec{
			Kind: raw.UDP, Method: raw.Ring, Namespace: s.topology.Namespace("outside").Path(), Target: datagramPort,
			Sources: netip.MustParsePrefix("198.18.0.0/30"), Rate: 50_000, Duration: 2 * time.Hour, Senders: 1,
		})
		if err != nil {
			s.tb.Errorf("flood: %v", err)
		}
	})
	for range 2 {
		all.Go(func() {
			for ctx.Err() == nil {
				for _, fd := range s.datagramSockets(100) {
					first, second, err := askTwice(fd)
					_ = unix.Close(fd)
					flows.Add(1)
					if err == nil && first != second {
						moved.Add(1)
					}
				}
			}
		})
	}
	all.Wait()
	s.tb.Logf("%d flows of two datagrams", flows.Load())
	if moved.Load() > 0 {
		got.gain("of %d flows of two datagrams %d changed their backend", flows.Load(), moved.Load())
	}
}

// datagramSockets opens sockets outside that are connected to the NodePort.
func (s *stage) datagramSockets(count int) (fds []int) {
	s.do("outside", func() error {
		for range count {
			fd, err := dial(unix.SOCK_DGRAM, nodePort, time.Second)
			if err != nil {
				return err
			}
			fds = append(fds, fd)
		}
		return nil
	})
	return fds
}

// askTwice sends two datagrams at once and returns who answers. One that is lost, as
// datagrams may be, says nothing.
func askTwice(fd int) (first, second string, err error) {
	request := make([]byte, words.RequestHeader)
	words.Request{Length: words.RequestHeader}.Put(request)
	for range 2 {
		if _, err := unix.Write(fd, request); err != nil {
			return "", "", err
		}
	}
	b := make([]byte, words.AnswerHeader+words.MaxName)
	for _, name := range []*string{&first, &second} {
		n, err := unix.Read(fd, b)
		if err != nil {
			return "", "", err
		}
		answer, err := words.ParseAnswer(b[:n])
		if err != nil {
			return "", "", err
		}
		*name = string(answer.Name)
	}
	return first, second, nil
}
