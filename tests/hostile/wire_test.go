package hostile_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/headgate/headgate/pkg/traffic/raw"
)

// wire is a packet socket outside, on the device that leads to the node.
type wire struct {
	socket int
	link   *unix.SockaddrLinklayer
	from   []byte // hardware addresses
	to     []byte
}

func (s *stage) openWire() *wire {
	s.tb.Helper()
	w := &wire{}
	s.do("node-a", func() error {
		l, err := netlink.LinkByName("hg-outside")
		if err == nil {
			w.to = l.Attrs().HardwareAddr
		}
		return err
	})
	s.do("outside", func() error {
		l, err := netlink.LinkByName("hg-node-a")
		if err != nil {
			return err
		}
		w.from = l.Attrs().HardwareAddr
		w.link = &unix.SockaddrLinklayer{Protocol: 0x0008, Ifindex: l.Attrs().Index}
		w.socket, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		return err
	})
	s.tb.Cleanup(func() { _ = unix.Close(w.socket) })
	return w
}

// segment is a TCP segment or, with a payload, a datagram of UDP.
type segment struct {
	from, to netip.AddrPort
	ttl      uint8 // 0 means 64
	ack      bool  // of TCP: an ACK in place of a SYN
	payload  []byte
	// offset of a fragment in bytes, and whether more are to come: what the
	// payload is then is nothing but bytes behind the IP header.
	offset   int
	more     bool
	protocol layers.IPProtocol // of such a fragment
	number   uint16            // of its datagram
}

// send sends a segment. A device that is busy drops it.
func (w *wire) send(s segment) error {
	b := gopacket.NewSerializeBuffer()
	ip := &layers.IPv4{Version: 4, TTL: 64, Id: s.number, SrcIP: s.from.Addr().AsSlice(), DstIP: s.to.Addr().AsSlice(), FragOffset: uint16(s.offset / 8)}
	if s.ttl > 0 {
		ip.TTL = s.ttl
	}
	if s.more {
		ip.Flags = layers.IPv4MoreFragments
	}
	packet := []gopacket.SerializableLayer{&layers.Ethernet{SrcMAC: w.from, DstMAC: w.to, EthernetType: layers.EthernetTypeIPv4}, ip}
	switch {
	case s.more || s.offset > 0:
		ip.Protocol = s.protocol
	case s.payload != nil:
		udp := &layers.UDP{SrcPort: layers.UDPPort(s.from.Port()), DstPort: layers.UDPPort(s.to.Port())}
		_ = udp.SetNetworkLayerForChecksum(ip) // of IPv4 it is never an error
		ip.Protocol, packet = layers.IPProtocolUDP, append(packet, udp)
	default:
		tcp := &layers.TCP{SrcPort: layers.TCPPort(s.from.Port()), DstPort: layers.TCPPort(s.to.Port()), Seq: 1000, Window: 1000, SYN: !s.ack, ACK: s.ack}
		_ = tcp.SetNetworkLayerForChecksum(ip)
		ip.Protocol, packet = layers.IPProtocolTCP, append(packet, tcp)
	}
	options := gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}
	if err := gopacket.SerializeLayers(b, options, append(packet, gopacket.Payload(s.payload))...); err != nil {
		return err
	}
	if err := unix.Sendto(w.socket, b.Bytes(), 0, w.link); err != nil && !errors.Is(err, unix.ENOBUFS) {
		return fmt.Errorf("send: %w", err)
	}
	return nil
}

// flood sends what next makes, so many a second, until the context ends.
func (s *stage) flood(ctx context.Context, rate int, next func(i int) segment) {
	s.tb.Helper()
	for i, began := 0, time.Now(); ctx.Err() == nil; i++ {
		if ahead := time.Duration(i)*time.Second/time.Duration(rate) - time.Since(began); ahead > 2*time.Millisecond {
			pause(ctx, ahead)
		}
		if err := s.wire.send(next(i)); err != nil {
			s.tb.Errorf("flood: %v", err)
			return
		}
	}
}

// repeatedSYNs sends every SYN twice, from sources whose packets the stack drops or
// whose answers go nowhere.
func repeatedSYNs(ttl uint8, source func(i int) netip.Addr) func(context.Context, *stage, *row) {
	return func(ctx context.Context, s *stage, _ *row) {
		s.flood(ctx, 3000, func(i int) segment {
			return segment{from: netip.AddrPortFrom(source(i/2), uint16(1024+i/2%60_000)), to: nodePort, ttl: ttl}
		})
	}
}

// always is one address.
func always(addr string) func(int) netip.Addr {
	return func(int) netip.Addr { return netip.MustParseAddr(addr) }
}

// nowhere are addresses that nobody has.
func nowhere(i int) netip.Addr { return netip.AddrFrom4([4]byte{198, 18, byte(i >> 8), byte(i)}) }

func acknowledgements(ctx context.Context, s *stage, _ *row) {
	s.flood(ctx, 10_000, func(i int) segment {
		return segment{from: netip.AddrPortFrom(nowhere(i), uint16(1024+rand.IntN(60_000))), to: nodePort, ack: true}
	})
}

// forUnspecified sends SYNs to the NodePort at 0.0.0.0, which the stack would drop.
func forUnspecified(ctx context.Context, s *stage, got *row) {
	const port = 61_001
	answers, err := s.listenForAnswers(port)
	if err != nil {
		s.tb.Fatal(err)
	}
	s.flood(ctx, 100, func(int) segment {
		return segment{from: netip.AddrPortFrom(outsideAddr, port), to: netip.AddrPortFrom(netip.IPv4Unspecified(), nodePort.Port())}
	})
	if n := answers(); n > 0 {
		got.gain("%d answers to SYNs for 0.0.0.0", n)
	}
}

// listenForAnswers counts the TCP segments that come back to a port outside.
func (s *stage) listenForAnswers(port uint16) (count func() int64, err error) {
	socket := -1
	s.do("outside", func() (err error) {
		socket, err = unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0x0008)
		return err
	})
	limit := unix.Timeval{Usec: 200_000}
	if err := unix.SetsockoptTimeval(socket, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &limit); err != nil {
		return nil, err
	}
	var n atomic.Int64
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		b := make([]byte, 128)
		for {
			select {
			case <-stop:
				return
			default:
			}
			got, from, err := unix.Recvfrom(socket, b, 0)
			if err != nil || got < 40 || b[9] != unix.IPPROTO_TCP {
				continue
			}
			if l, _ := from.(*unix.SockaddrLinklayer); l.Pkttype == unix.PACKET_HOST && uint16(b[22])<<8|uint16(b[23]) == port {
				n.Add(1)
			}
		}
	}()
	return func() int64 { close(stop); <-stopped; _ = unix.Close(socket); return n.Load() }, nil
}

// fragmentsForNobody sends the beginnings of datagrams that are for no Service, and
// later fragments of TCP that begin within its header, to a pod. A victim's datagram is
// in two fragments, and the second one is late.
func fragmentsForNobody(ctx context.Context, s *stage, got *row) {
	before := s.agent.Status().Drops["fragment"]
	datagrams := s.countDatagrams("web-1", netip.AddrPortFrom(web1Addr, 9999))
	flooded := make(chan error)
	go func() {
		_, err := raw.Run(ctx, raw.Spec{
			Kind: raw.FirstFragments, Method: raw.Ring, Namespace: s.topology.Namespace("outside").Path(),
			Target: netip.AddrPortFrom(tenantAddr, 9), Sources: netip.MustParsePrefix("198.18.0.0/16"), Rate: 20_000, Duration: 2 * time.Hour, Senders: 1,
		})
		flooded <- err
	}()
	sent := s.lateFragments(ctx, datagrams)
	if err := <-flooded; err != nil {
		s.tb.Errorf("flood: %v", err)
	}
	if received := datagrams.Load(); received < sent {
		got.gain("of %d datagrams in two fragments %d are lost", sent, sent-received)
	}
	if dropped := s.agent.Status().Drops["fragment"] - before; dropped > 0 {
		got.gain("%d fragments dropped that are for nobody", dropped)
	}
}

// lateFragments sends a datagram in two fragments, a second apart, and fragments for
// nobody between, until the context ends. The stack loses none: each is awaited.
func (s *stage) lateFragments(ctx context.Context, received *atomic.Uint64) (sent uint64) {
	s.tb.Helper()
	for ; ctx.Err() == nil; sent++ {
		from, to := netip.AddrPortFrom(outsideAddr, 61_002), datagramPort
		number := uint16(100 + sent)
		header := []byte{byte(from.Port() >> 8), byte(from.Port() & 0xff), byte(to.Port() >> 8), byte(to.Port() & 0xff), 0, 24, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8}
		parts := []segment{
			{from: from, to: to, payload: header, more: true, protocol: layers.IPProtocolUDP, number: number},
			{from: from, to: to, payload: header[8:], offset: 16, protocol: layers.IPProtocolUDP, number: number},
		}
		if err := s.wire.send(parts[0]); err != nil {
			s.tb.Fatal(err)
		}
		for i := range 10 {
			for offset := range 2 {
				stray := segment{from: from, to: netip.AddrPortFrom(tenantAddr, 9), payload: make([]byte, 24), offset: 8 * offset, more: true, protocol: layers.IPProtocolTCP, number: number + uint16(i)}
				if err := s.wire.send(stray); err != nil {
					s.tb.Fatal(err)
				}
			}
			time.Sleep(100 * time.Millisecond)
		}
		if err := s.wire.send(parts[1]); err != nil {
			s.tb.Fatal(err)
		}
		for end := time.Now().Add(3 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
			if received.Load() > sent {
				break
			}
		}
	}
	return sent
}
