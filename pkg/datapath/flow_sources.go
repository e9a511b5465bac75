package datapath

import "net/netip"

// FreeSources frees the flows that give packets another source address than those given, with their
// reply directions, and returns how many there were. The next datagram begins another flow, and keeps its
// backend. The next segment of TCP is reset. It may be called while other calls are under way.
func (d *Datapath) FreeSources(own map[netip.Addr]bool) (freed int, err error) {
	d.census.mu.Lock()
	defer d.census.mu.Unlock()
	t, err := openFlowTable(d.maps, true)
	if err != nil {
		return 0, err
	}
	defer t.Close()
	for w, f := range t.flows() {
		byDevice := headgateHook(f.Hook) == headgateHookHOOK_OUT && w.has(headgateFlowFlagFLOW_ORIGINAL)
		if !byDevice || own[decodeAddr(f.To)] || !w.seize() {
			continue
		}
		w.free()
		t.freeOther(&f)
		freed++
	}
	if freed > 0 {
		d.maps.newEpoch()
	}
	return freed, nil
}
