package datapath

// FlowsMigrated is what the maps say of themselves, for tests.
func (d *Datapath) FlowsMigrated() *uint64 { return &d.maps.about.at(0).FlowsMigrated }

// Forget has a Datapath load anew what it needs to tell sockets.
func Forget(d *Datapath) { d.teller.forget() }
