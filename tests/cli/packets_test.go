package cli

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"regexp"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"
	"github.com/rogpeppe/go-internal/testscript"
)

var processID = regexp.MustCompile(`pid \d+`)

// packets FILE prints the ends of the packets in a file, and the comments on them.
func packets(ts *testscript.TestScript, _ bool, args []string) {
	file, err := os.Open(ts.MkAbs(args[0]))
	ts.Check(err)
	defer file.Close()
	r, err := pcapgo.NewNgReader(file, pcapgo.DefaultNgReaderOptions)
	ts.Check(err)
	for {
		data, _, options, err := r.ReadPacketDataWithOptions()
		if errors.Is(err, io.EOF) {
			return
		}
		ts.Check(err)
		p := gopacket.NewPacket(data, r.LinkType(), gopacket.Default)
		if p.ErrorLayer() != nil && p.TransportLayer() == nil {
			ts.Fatalf("%x: %v", data, p.ErrorLayer().Error())
		}
		for _, c := range options.Comments {
			fmt.Fprintf(ts.Stdout(), "%s > %s: %s\n", endOf(p, false), endOf(p, true), processID.ReplaceAllString(c, "pid 4711"))
		}
	}
}

// endOf returns address and port of an end of a packet.
func endOf(p gopacket.Packet, destination bool) string {
	ip := p.NetworkLayer().NetworkFlow().Src()
	port := ""
	if destination {
		ip = p.NetworkLayer().NetworkFlow().Dst()
	}
	switch l := p.TransportLayer().(type) {
	case *layers.TCP:
		port = fmt.Sprint(map[bool]uint16{false: uint16(l.SrcPort), true: uint16(l.DstPort)}[destination])
	case *layers.UDP:
		port = fmt.Sprint(map[bool]uint16{false: uint16(l.SrcPort), true: uint16(l.DstPort)}[destination])
	}
	return net.JoinHostPort(ip.String(), port)
}
