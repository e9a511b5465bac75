package datapath

// Settled is what the maps say of themselves, for tests.
func (d *Datapath) Settled() *uint64 { return &d.maps.about.at(0).Settled }
