package raw

import (
	"fmt"
	"net/netip"
	"runtime"
	"slices"
	"time"
)

// Method says which way packets take to the device.
type Method string

// The methods.
const (
	Ring Method = "ring" // packet(7)
	Live Method = "live" // live frames of BPF_PROG_TEST_RUN
)

// Spec is a flood. The zero value of a field that may have one is said with it.
type Spec struct {
	Kind   Kind
	Method Method
	// Namespace is the path of the network namespace that packets start in.
	Namespace string
	Target    netip.AddrPort
	// Sources is the prefix of the sources. Their last two bytes vary, as far
	// as the prefix leaves them; the source port does too.
	Sources  netip.Prefix
	Size     int           // of a packet in bytes with its Ethernet header, 0 means the smallest
	Rate     float64       // packets a second in all, 0 means as many as go
	Duration time.Duration // up to a day
	Interval time.Duration // of the time line, 0 means a hundredth of Duration, within reason
	Senders  int           // threads, 0 means one for each CPU
}

const (
	maxSize     = 1514
	maxDuration = 24 * time.Hour
	maxPoints   = 1000
)

// Validate returns what is wrong with a flood, in a line that says what to do.
func (s Spec) Validate() error {
	switch {
	case !slices.Contains(Kinds(), s.Kind):
		return fmt.Errorf("kind %q: there are %v", s.Kind, Kinds())
	case s.Method != Ring && s.Method != Live:
		return fmt.Errorf("method %q: there are %s and %s", s.Method, Ring, Live)
	case s.Method == Live && s.Kind != SYN && s.Kind != UDP:
		return fmt.Errorf("%s by live frames: those make %s and %s only; use the ring", s.Kind, SYN, UDP)
	case s.Namespace == "":
		return fmt.Errorf("no namespace: packets go to namespaces made for them only")
	case !s.Target.IsValid() || s.Target.Port() == 0:
		return fmt.Errorf("target %s: write an address and a port", s.Target)
	case !s.Sources.IsValid():
		return fmt.Errorf("sources %s: write a prefix like 10.0.0.0/16", s.Sources)
	case s.Size < 0 || s.Size > maxSize:
		return fmt.Errorf("size is %d: it goes up to %d", s.Size, maxSize)
	case s.Rate < 0:
		return fmt.Errorf("rate is %v: it is 0 for as many as go, or more", s.Rate)
	case s.Duration < 10*time.Millisecond || s.Duration > maxDuration:
		return fmt.Errorf("duration is %s: it goes from 10ms to %s", s.Duration, maxDuration)
	case s.Senders < 0 || s.Senders > 256:
		return fmt.Errorf("%d senders: there can be 1 to 256", s.Senders)
	}
	return nil
}

func (s Spec) withDefaults() Spec {
	if s.Senders == 0 {
		s.Senders = runtime.GOMAXPROCS(0)
	}
	if s.Interval == 0 {
		s.Interval = max(s.Duration/100, 10*time.Millisecond)
	}
	s.Interval = max(s.Interval, s.Duration/maxPoints)
	return s
}
