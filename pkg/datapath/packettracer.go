package datapath

import (
	"fmt"
	"net/netip"
	"sort"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/pkg/lb"
)

// Verdict is what became of a packet.
type Verdict string

// The verdicts.
const (
	Passed   Verdict = "passed"   // to TC, as it came
	Repeated Verdict = "repeated" // it became what TC made of the one before
	Carried  Verdict = "carried"  // unchanged, to the home of a backend
	Refused  Verdict = "refused"  // dropped, or answered with a refusal
)

var verdicts = map[headgateToldVerdict]Verdict{
	headgateToldVerdictTOLD_PASSED: Passed, headgateToldVerdictTOLD_REPEATED: Repeated, headgateToldVerdictTOLD_CARRIED: Carried,
	headgateToldVerdictTOLD_CARRIED_BY_TC: Carried, headgateToldVerdictTOLD_REFUSED: Refused,
}

// ToldPacket is a packet, and what became of it.
type ToldPacket struct {
	At       time.Time
	Hook     string // driver, in or out
	Device   uint32 // index, in the network namespace of the agent
	Verdict  Verdict
	Reason   string // of one that was refused, in the word of the counter
	Service  uint32 // likewise, 0 where it is not known
	Protocol lb.Protocol
	// From and To are its ends. Ports are 0 where they are not known, as of fragments.
	From, To netip.AddrPort
	// NowFrom and NowTo are what it left with: of one that was carried the addresses of its outer header, of one
	// that was passed or refused those that it came with.
	NowFrom, NowTo netip.AddrPort
}

// tracedFor is how long programs go on telling after somebody has looked. Nobody ends that before: others may look.
const tracedFor = time.Second

// PacketTracer has programs tell what becomes of packets, for as long as somebody looks: at drivers, and of those that TC
// carries. The zero value has not looked yet.
type PacketTracer struct {
	Drops bool // of packets that are refused, instead
	cpus  []toldSoFar
	lost  uint64
}

// toldSoFar is what was known of a CPU at the last look.
type toldSoFar struct{ last, leftOut uint64 }

// Look calls do with the packets that programs have told of since the last look, in the order in which they came.
// The first look only has them begin. It is to be repeated several times a second.
func (t *PacketTracer) Look(r *Reader, do func(ToldPacket) error) error {
	now, err := monotonic()
	if err != nil {
		return err
	}
	about := r.maps.about.at(0)
	until, name := &about.TracedUntilNs, "driver_told"
	if t.Drops {
		until, name = &about.DropsUntilNs, "drops_told"
	}
	atomic.StoreUint64(until, now+uint64(tracedFor))
	var told []headgateToldPackets
	if err := r.maps.byName[name].Lookup(uint32(0), &told); err != nil {
		return fmt.Errorf("read what programs tell of packets: %w", err)
	}
	names, err := names()
	if err != nil {
		return err
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
	sort.Slice(fresh, func(i, j int) bool { return fresh[i].AtNs < fresh[j].AtNs }) // of slices.SortFunc this type takes 15 kB
	booted := time.Now().Add(-time.Duration(now))
	for _, p := range fresh {
		if err := do(p.decode(booted, names.drops)); err != nil {
			return err
		}
	}
	return nil
}

// read returns the packets of a CPU that are new, and counts those that are not to be had.
func (t *PacketTracer) read(known *toldSoFar, now *headgateToldPackets) (fresh []headgateToldPacket) {
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

func (p headgateToldPacket) decode(booted time.Time, reasons []string) ToldPacket {
	out := ToldPacket{
		At: booted.Add(time.Duration(p.AtNs)), Hook: "driver", Device: p.Ifindex, Verdict: verdicts[headgateToldVerdict(p.Verdict)],
		Protocol: lb.Protocol(p.Came.Protocol),
	}
	if headgateToldVerdict(p.Verdict) >= headgateToldVerdictTOLD_CARRIED_BY_TC {
		out.Hook = hookName(p.Came.Hook)
	}
	out.From, out.To = tupleEnds(p.Came)
	out.NowFrom, out.NowTo = out.From, out.To
	switch out.Verdict {
	case Repeated, Carried:
		out.NowFrom, out.NowTo = tupleEnds(p.Leaves)
	case Refused:
		out.Reason, out.Service = reasons[min(int(p.Reason), len(reasons)-1)], p.Service
	}
	return out
}

// Lost returns how many packets were not told of: more came than anybody could read.
func (t *PacketTracer) Lost() uint64 { return t.lost }
