package datapath

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/pkg/lb"
)

// Verdict is what became of a packet at the driver of a device.
type Verdict string

// The verdicts.
const (
	Passed   Verdict = "passed"   // to TC, as it came
	Repeated Verdict = "repeated" // it became what TC made of the one before
	Carried  Verdict = "carried"  // unchanged, to the home of a backend
)

var verdicts = map[headgateToldVerdict]Verdict{
	headgateToldVerdictTOLD_PASSED: Passed, headgateToldVerdictTOLD_REPEATED: Repeated, headgateToldVerdictTOLD_CARRIED: Carried,
}

// ToldPacket is a packet at a driver, and what became of it.
type ToldPacket struct {
	At       time.Time
	Device   uint32 // index, in the network namespace of the agent
	Verdict  Verdict
	Protocol lb.Protocol
	From, To netip.AddrPort
	// NowFrom and NowTo are what it left with: of one that was carried the addresses of its outer header, of one
	// that was passed those that it came with.
	NowFrom, NowTo netip.AddrPort
}

// tracedFor is how long drivers go on telling after somebody has looked.
const tracedFor = time.Second

// DriverTracer has drivers tell what becomes of packets, for as long as somebody looks. The zero value has
// not looked yet.
type DriverTracer struct {
	cpus []toldSoFar
	lost uint64
}

// toldSoFar is what was known of a CPU at the last look.
type toldSoFar struct{ last, leftOut uint64 }

// Look calls do with the packets that drivers have told of since the last look, in the order in which they came.
// The first look only has drivers begin. It is to be repeated several times a second.
func (t *DriverTracer) Look(r *Reader, do func(ToldPacket) error) error {
	now, err := monotonic()
	if err != nil {
		return err
	}
	atomic.StoreUint64(&r.maps.about.at(0).TracedUntilNs, now+uint64(tracedFor))
	var told []headgateToldPackets
	if err := r.maps.byName["driver_told"].Lookup(uint32(0), &told); err != nil {
		return fmt.Errorf("read what drivers tell: %w", err)
	}
	first := t.cpus == nil
	if first {
		t.cpus = make([]toldSoFar, len(told))
	}
	var fresh []headgateToldPacket
	for cpu := range told {
		fresh = append(fresh, t.read(&t.cpus[cpu], &told[cpu])...)
	}
	if first {
		t.lost = 0
		return nil
	}
	slices.SortFunc(fresh, func(a, b headgateToldPacket) int { return cmp.Compare(a.AtNs, b.AtNs) })
	booted := time.Now().Add(-time.Duration(now))
	for _, p := range fresh {
		if err := do(p.decode(booted)); err != nil {
			return err
		}
	}
	return nil
}

// read returns the packets of a CPU that are new, and counts those that are not to be had.
func (t *DriverTracer) read(known *toldSoFar, now *headgateToldPackets) (fresh []headgateToldPacket) {
	if now.Last < known.last || now.LeftOut < known.leftOut { // other maps, which begin again
		*known = toldSoFar{}
	}
	for _, p := range now.Packet {
		if p.Number > known.last && p.Number <= now.Last {
			fresh = append(fresh, p)
		}
	}
	t.lost += now.LeftOut - known.leftOut + now.Last - known.last - uint64(len(fresh))
	*known = toldSoFar{now.Last, now.LeftOut}
	return fresh
}

func (p headgateToldPacket) decode(booted time.Time) ToldPacket {
	out := ToldPacket{
		At: booted.Add(time.Duration(p.AtNs)), Device: p.Ifindex, Verdict: verdicts[headgateToldVerdict(p.Verdict)],
		Protocol: lb.Protocol(p.Came.Protocol),
	}
	out.From, out.To = tupleEnds(p.Came)
	out.NowFrom, out.NowTo = out.From, out.To
	if out.Verdict != Passed {
		out.NowFrom, out.NowTo = tupleEnds(p.Leaves)
	}
	return out
}

// Lost returns how many packets were not told of: more came than anybody could read.
func (t *DriverTracer) Lost() uint64 { return t.lost }

// Stop has drivers tell no more, unless others go on to look.
func (t *DriverTracer) Stop(r *Reader) { atomic.StoreUint64(&r.maps.about.at(0).TracedUntilNs, 0) }
