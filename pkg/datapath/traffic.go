package datapath

import (
	"math"
	"time"
)

// Traffic is what has gone to backends of a Service port, or to one backend, and come back. It is
// all zero where the agent does not count it (--traffic=false).
type Traffic struct {
	// Payload in bytes, of TCP sockets on this node and of packets of flows.
	BytesTo   uint64 `json:"bytesTo,omitempty"`
	BytesFrom uint64 `json:"bytesFrom,omitempty"`
	// Packets of flows: one that the kernel hands over as a whole is one, however many
	// frames it was.
	PacketsTo   uint64   `json:"packetsTo,omitempty"`
	PacketsFrom uint64   `json:"packetsFrom,omitempty"`
	Failed      Failures `json:"failed,omitzero"`
}

// Failures is how many connections backends have failed, by how.
type Failures struct {
	Refused     uint64 `json:"refused,omitempty"`
	TimedOut    uint64 `json:"timedOut,omitempty"`
	Unreachable uint64 `json:"unreachable,omitempty"`
	Reset       uint64 `json:"reset,omitempty"`
}

// Sum returns how many failed.
func (f Failures) Sum() uint64 { return f.Refused + f.TimedOut + f.Unreachable + f.Reset }

// ByReason returns them by the names that metrics have.
func (f Failures) ByReason() map[string]uint64 {
	return map[string]uint64{"refused": f.Refused, "timed_out": f.TimedOut, "unreachable": f.Unreachable, "reset": f.Reset}
}

func decodeTraffic(t *headgateTraffic) Traffic {
	return Traffic{
		BytesTo: t.Bytes[headgateDirectionTO_BACKEND], BytesFrom: t.Bytes[headgateDirectionFROM_BACKEND],
		PacketsTo: t.Packets[headgateDirectionTO_BACKEND], PacketsFrom: t.Packets[headgateDirectionFROM_BACKEND],
		Failed: Failures{
			Refused:     t.Failures[headgateFailureFAILURE_REFUSED],
			TimedOut:    t.Failures[headgateFailureFAILURE_TIMED_OUT],
			Unreachable: t.Failures[headgateFailureFAILURE_UNREACHABLE],
			Reset:       t.Failures[headgateFailureFAILURE_RESET],
		},
	}
}

// ConnectTimes is how many connections took how long, in buckets: each is up to twice the time of
// the one before, see ConnectTimeBound.
type ConnectTimes [headgateConnectTimeCONNECT_TIMES]uint64

// ConnectTimeLeast is the bound of the first bucket, as a power of two of a second.
const ConnectTimeLeast = int(headgateConnectTimeCONNECT_TIME_SHIFT) - 20

// ConnectTimeBound returns the bound of a bucket in seconds, a power of two; the last bucket has none.
func ConnectTimeBound(bucket int) float64 {
	return math.Ldexp(1, ConnectTimeLeast+bucket)
}

// Count returns how many connections there are.
func (c *ConnectTimes) Count() (n uint64) {
	for _, in := range c {
		n += in
	}
	return n
}

// Within returns how long so large a share of them took at the most, 0 where there are none. Of those
// that took longest only the least is known.
func (c *ConnectTimes) Within(share float64) time.Duration {
	all, sum := c.Count(), uint64(0)
	if all == 0 {
		return 0
	}
	last := len(c) - 1
	for i, in := range c[:last] {
		if sum += in; float64(sum) >= share*float64(all) {
			last = i
			break
		}
	}
	return time.Duration(ConnectTimeBound(min(last, len(c)-2)) * float64(time.Second))
}

// ServiceTraffic is the traffic of a Service port since it was named.
type ServiceTraffic struct {
	Connections uint64
	Traffic
	ConnectTimes ConnectTimes // of sockets
}

// Traffic returns that of a Service port.
func (r *Reader) Traffic(service uint32) (out ServiceTraffic, err error) {
	if service >= r.services.len {
		return out, nil
	}
	s := r.services.at(service)
	return ServiceTraffic{s.Connections, decodeTraffic((*headgateTraffic)(&s.Traffic)), s.ConnectTimes}, nil
}
