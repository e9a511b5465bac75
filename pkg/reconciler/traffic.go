package reconciler

import "go.uber.org/zap"

// trafficTaker is a datapath in which packets of flows are counted one by one, and added up later.
type trafficTaker interface {
	// TakeTrafficInTurn adds up what has come, where that costs little beside what the node does else. It may be
	// called while another call is under way.
	TakeTrafficInTurn() error
}

// takeTraffic adds up the packets of flows, beside the loop.
func (r *Reconciler) takeTraffic() {
	dp, ok := r.dp.(trafficTaker)
	if !ok || r.takingTraffic {
		return
	}
	r.takingTraffic = true
	r.beside.start(func() func() bool {
		err := dp.TakeTrafficInTurn()
		return func() bool {
			r.takingTraffic = false
			if err != nil {
				r.log.Warn("add up the packets of flows", zap.Error(err))
			}
			return false
		}
	})
}
