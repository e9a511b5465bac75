package load

import (
	"fmt"
	"net/netip"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/pkg/traffic/result"
	"github.com/headgate/headgate/pkg/traffic/wire"
)

// Kind says what an operation is.
type Kind string

// The kinds of load. All but Connect and HTTP need servers of package serve.
const (
	// Connect is a TCP connect() and a reset.
	Connect Kind = "connect"
	// CRR is connect, request, response, close, over TCP.
	CRR Kind = "crr"
	// RR is a request and its response on a TCP connection that is kept.
	RR Kind = "rr"
	// Bulk sends as fast as it goes over TCP. Its rate is in bytes.
	Bulk Kind = "bulk"
	// UDP is a request and its response on a connected UDP socket.
	UDP Kind = "udp"
	// SendTo is the same on a UDP socket that is never connected: each request
	// names its target, and the response must come from there.
	SendTo Kind = "sendto"
	// Packets are datagrams one way. Servers say how many they received.
	Packets Kind = "packets"
	// HTTP is an HTTP/1.1 GET, on a connection that is kept.
	HTTP Kind = "http"
)

// kinds are all there are, and whats what an operation of each is.
var (
	kinds = []Kind{Connect, CRR, RR, Bulk, UDP, SendTo, Packets, HTTP}
	whats = map[Kind]string{
		Connect: "TCP connect() and a reset, to any server",
		CRR:     "connect, request, response, close",
		RR:      "request and response on a TCP connection that is kept",
		Bulk:    "bytes over TCP, as fast as they go",
		UDP:     "request and response on a connected UDP socket",
		SendTo:  "the same on a UDP socket that is never connected",
		Packets: "UDP datagrams one way; the servers count what arrives",
		HTTP:    "GET over HTTP/1.1, to any server",
	}
)

// Kinds returns the kinds of load.
func Kinds() []Kind { return slices.Clone(kinds) }

// What says what an operation of the kind is.
func (k Kind) What() string { return whats[k] }

// OverUDP says that a kind sends datagrams.
func (k Kind) OverUDP() bool { return k == UDP || k == SendTo || k == Packets }

// Spec is a load. The zero value of a field that may have one is said with it.
type Spec struct {
	Kind     Kind
	Download bool             // of Bulk: the server sends, and the client counts
	Targets  []netip.AddrPort // connections take them in turn
	// Rate is operations a second in all, datagrams for Packets; 0 is a closed
	// loop, for Packets as fast as it goes.
	Rate    float64
	Poisson bool // random arrivals at this rate instead of even ones
	// Connections is how many there are at the same time, at most or, where
	// they are kept, from the beginning. 0 means 32, or one for each sender
	// of Bulk and 8 of Packets.
	Connections int
	Senders     int  // threads, 0 means one for each CPU
	Unbound     bool // do not bind each sender to a CPU
	// PerSocket is how many operations a socket is used for: 0 means 1 for
	// Connect and CRR, else no limit. A new socket is a new choice of backend.
	PerSocket int
	Request   int // bytes, 0 means 64, the smallest possible for Packets
	Response  int // bytes, 0 means 64
	// Sources are prefixes of addresses of this machine to send from, taken in
	// turn with new sockets; without any, the kernel chooses.
	Sources []netip.Prefix
	// FirstPort and LastPort bound the source ports, 0 means the kernel's
	// choice.
	FirstPort, LastPort uint16
	FIN                 bool          // end connections in peace, and have TIME_WAIT; otherwise reset them
	Timeout             time.Duration // of an operation, 0 means a second
	WarmUp              time.Duration // before counting begins
	Duration            time.Duration // of counting
	Interval            time.Duration // of the time line, 0 means a hundredth of Duration, within reason
	Path                string        // of HTTP, "" means /
	Host                string        // of HTTP, "" means the target
	BackendHeader       string        // of HTTP: says who answered, "" means Headgate-Backend
	Seed                uint64        // of Poisson arrivals
	// Mark is when something is to happen, after counting begins: the first
	// choice of a backend is the first one from then on.
	Mark time.Duration
	// CheckPeer fails an operation on a new socket whose peer, as getpeername()
	// says, is not the target.
	CheckPeer bool
	// Unchecked starts without asking the targets first.
	Unchecked bool
	// Ceiling has the generator measure what it can do at most, when the run is
	// over: see the function Ceiling.
	Ceiling bool
	// Outside says that targets may be other than loopback: those of
	// namespaces made for the purpose, or with somebody's consent.
	Outside bool
}

// Limits of a Spec.
const (
	maxRate        = 5e6
	maxConnections = 1 << 20
	maxSenders     = 256
	maxDuration    = 24 * time.Hour
	maxPoints      = 1000
)

// withDefaults fills in what is zero.
func (s Spec) withDefaults() Spec {
	s.Senders = orElse(s.Senders, runtime.GOMAXPROCS(0))
	if s.Connections == 0 {
		s.Connections = map[Kind]int{Bulk: s.Senders, Packets: 8}[s.Kind]
		s.Connections = orElse(s.Connections, 32)
	}
	s.Senders = min(s.Senders, s.Connections)
	if s.PerSocket == 0 && (s.Kind == Connect || s.Kind == CRR) {
		s.PerSocket = 1
	}
	if s.Kind == Packets {
		s.Request = orElse(s.Request, wire.RequestHeader)
	}
	s.Request = orElse(s.Request, 64)
	s.Response = orElse(s.Response, 64)
	s.Timeout = orElse(s.Timeout, time.Second)
	if s.Interval == 0 {
		s.Interval = max(s.Duration/100, 10*time.Millisecond)
	}
	s.Interval = max(s.Interval, s.Duration/maxPoints)
	s.Path = orElse(s.Path, "/")
	s.BackendHeader = orElse(s.BackendHeader, "Headgate-Backend")
	return s
}

func orElse[T comparable](value, otherwise T) T {
	var zero T
	if value == zero {
		return otherwise
	}
	return value
}

// Validate returns what is wrong with a load, in a line that says what to do.
func (s Spec) Validate() error {
	if !slices.Contains(kinds, s.Kind) {
		return fmt.Errorf("kind %q: there are %s", s.Kind, join(kinds))
	}
	if s.Download && s.Kind != Bulk {
		return fmt.Errorf("download is of bulk, and the kind is %s", s.Kind)
	}
	if len(s.Targets) == 0 {
		return fmt.Errorf("no target: name at least one ADDRESS:PORT")
	}
	for _, t := range s.Targets {
		if !t.IsValid() || t.Port() == 0 || t.Addr().IsUnspecified() {
			return fmt.Errorf("target %s: write an address and a port that something can listen on", t)
		}
		if !s.Outside && !t.Addr().Unmap().IsLoopback() {
			return fmt.Errorf("target %s is outside: load goes to loopback and to namespaces made for it only, unless --allow-outside says that it may", t)
		}
	}
	for _, b := range s.bounds() {
		if b.value < b.low || b.value > b.high {
			return fmt.Errorf("%s is %s: it goes from %s to %s", b.name, plain(b.value), plain(b.low), plain(b.high))
		}
	}
	if s.FirstPort > s.LastPort || s.FirstPort == 0 && s.LastPort != 0 {
		return fmt.Errorf("source ports %d to %d: write the lower one first, from 1 on", s.FirstPort, s.LastPort)
	}
	for _, p := range s.Sources {
		if !p.IsValid() {
			return fmt.Errorf("source %s: not a prefix; write one like 192.0.2.0/24 or 2001:db8::/64", p)
		}
	}
	return nil
}

// plain is a number without exponent.
func plain(x float64) string { return strconv.FormatFloat(x, 'f', -1, 64) }

type bound struct {
	name             string
	value, low, high float64
}

func (s Spec) bounds() []bound {
	s = s.withDefaults()
	small, large := float64(wire.RequestHeader), float64(wire.MaxMessage)
	if s.Kind.OverUDP() {
		large = wire.MaxDatagram
	}
	return []bound{
		{"rate a second", s.Rate, 0, maxRate},
		{"number of connections", float64(s.Connections), 1, maxConnections},
		{"number of senders", float64(s.Senders), 1, maxSenders},
		{"operations per socket", float64(s.PerSocket), 0, 1e12},
		{"request size in bytes", float64(s.Request), small, large},
		{"response size in bytes", float64(s.Response), 0, large},
		{"timeout in seconds", s.Timeout.Seconds(), 0.001, 60},
		{"warm-up in seconds", s.WarmUp.Seconds(), 0, maxDuration.Seconds()},
		{"duration in seconds", s.Duration.Seconds(), 0.01, maxDuration.Seconds()},
		{"interval in seconds", s.Interval.Seconds(), 0.001, maxDuration.Seconds()},
	}
}

func join[T ~string](list []T) string {
	texts := make([]string, len(list))
	for i, t := range list {
		texts[i] = string(t)
	}
	return strings.Join(texts, ", ")
}

// asked is the load as it stands in a result.
func (s Spec) asked() result.Load {
	l := result.Load{
		Kind: string(s.Kind), Download: s.Download, Loop: "closed", Rate: s.Rate, Connections: s.Connections, Senders: s.Senders, PerSocket: s.PerSocket,
		Request: s.Request, Response: s.Response, Timeout: s.Timeout, WarmUp: s.WarmUp, Duration: s.Duration,
	}
	if s.Rate > 0 {
		l.Loop, l.Arrivals = "open", "constant"
		if s.Poisson {
			l.Arrivals = "poisson"
		}
	}
	for _, t := range s.Targets {
		l.Targets = append(l.Targets, t.String())
	}
	for _, p := range s.Sources {
		l.Sources = append(l.Sources, p.String())
	}
	return l
}
