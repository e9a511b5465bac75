package cli

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"time"

	"github.com/headgate/headgate/pkg/datapath"
	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/packet"
)

// stdoutFile is the file name that stands for stdout.
const stdoutFile = "-"

// packetFile is the flag that takes where packets are written.
type packetFile string

// Set implements pflag.Value.
func (f *packetFile) Set(s string) error {
	if s == "" {
		return errNotTaken
	}
	*f = packetFile(s)
	return nil
}

// String implements pflag.Value.
func (f *packetFile) String() string { return string(*f) }

// Type implements pflag.Value.
func (*packetFile) Type() string { return "string" }

// Takes says what the flag takes.
func (*packetFile) Takes() string { return "the name of a file, or " + stdoutFile + " for stdout" }

// checkPackets refuses two forms on stdout at once.
func (t *trace) checkPackets() error {
	if t.file == stdoutFile && t.env.ForPrograms() {
		return errors.New("--pcap - has nothing but packets on stdout: write a file, or leave -o and --json away")
	}
	return nil
}

// capturing shows decisions, and writes packets where that is asked for: into a file that is made once
// nothing else is wrong.
func (t *trace) capturing(ctx context.Context, sockets *datapath.Tracer) (err error) {
	switch t.file {
	case "":
		return t.showAll(ctx, sockets)
	case stdoutFile:
		t.packets.out = t.out
	default:
		file, failed := os.Create(string(t.file))
		if failed != nil {
			return fmt.Errorf("--pcap: %w", failed)
		}
		defer func() { err = errors.Join(err, file.Close()) }()
		t.packets.out = file
	}
	if err := t.packets.begin(); err != nil {
		return err
	}
	return t.showAll(ctx, sockets)
}

// capture writes decisions as packets, in the format pcapng
// (https://ietf-opsawg-wg.github.io/draft-ietf-opsawg-pcap/draft-ietf-opsawg-pcapng.html), which Wireshark and
// tcpdump read. No library does it: what makes packets is no part of this program.
type capture struct{ out io.Writer }

// Of the format.
const (
	sectionBlock, interfaceBlock, packetBlock = 0x0a0d0d0a, 1, 6
	byteOrderMagic                            = 0x1a2b3c4d
	linkRaw                                   = 101 // packets begin with their IP header
	optionComment, optionName, optionTicks    = 1, 2, 9
	ticksNanoseconds                          = 9 // 10^-9 s
)

// begin writes what stands before all packets.
func (c capture) begin() error {
	section := words(nil, byteOrderMagic, 1, ^uint32(0), ^uint32(0)) // version 1.0, of unknown length
	network := option(option(words(nil, linkRaw, 0), optionName, "headgate"), optionTicks, string([]byte{ticksNanoseconds}))
	if err := c.block(sectionBlock, section); err != nil {
		return err
	}
	return c.block(interfaceBlock, words(network, 0)) // which ends the options
}

// decision writes the packet as it would have come, and as it goes on, if it does so as another.
func (c capture) decision(one traced) error {
	what := one.comment()
	if err := c.packet(one.At, one.before, "before: "+what); err != nil || one.Refused != "" || one.before == one.after || one.Verdict == datapath.Carried {
		return err
	}
	return c.packet(one.At, one.after, "after: "+what)
}

// packet writes a packet that begins a connection.
func (c capture) packet(at time.Time, p packetEnds, comment string) error {
	first := packet.First(p.protocol, p.from, p.to)
	ns := uint64(at.UnixNano())
	body := words(nil, 0, uint32(ns>>32), uint32(ns), uint32(len(first)), uint32(len(first)))
	return c.block(packetBlock, words(option(padded(append(body, first...)), optionComment, comment), 0))
}

// block writes a block, with its length before and behind.
func (c capture) block(kind uint32, body []byte) error {
	length := uint32(12 + len(body))
	if _, err := c.out.Write(words(append(words(nil, kind, length), body...), length)); err != nil {
		return fmt.Errorf("write decisions as packets: %w", err)
	}
	return nil
}

// words appends numbers in the order of bytes of this machine, as byteOrderMagic says.
func words(to []byte, all ...uint32) []byte {
	for _, word := range all {
		to = binary.NativeEndian.AppendUint32(to, word)
	}
	return to
}

func option(to []byte, code uint16, value string) []byte {
	value = value[:min(len(value), 1<<15)]
	to = binary.NativeEndian.AppendUint16(to, code)
	to = binary.NativeEndian.AppendUint16(to, uint16(len(value)))
	return padded(append(to, value...))
}

// padded fills up to a whole number of words.
func padded(b []byte) []byte { return append(b, make([]byte, -len(b)&3)...) }

// packetEnds is what a packet has of a decision.
type packetEnds struct {
	protocol lb.Protocol
	from, to netip.AddrPort
}

// ofSocket are the ends of what a socket sends, which has no address yet.
func ofSocket(to lb.AddrPort) packetEnds {
	from := netip.IPv6Unspecified()
	if to.Addr.Is4() {
		from = netip.IPv4Unspecified()
	}
	return packetEnds{to.Protocol, netip.AddrPortFrom(from, 0), netip.AddrPortFrom(to.Addr, to.Port)}
}

// comment says in a line what was decided. Whoever names a process or a Service may write what a terminal obeys.
func (one traced) comment() string {
	who := "a packet, " + one.Where
	if one.PID != 0 {
		who = one.Where + "() of " + one.process()
	}
	return lb.Printable(fmt.Sprintf("%s, to %s %s: %s", who, one.Asked, one.Service, one.became()))
}
