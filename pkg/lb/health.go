package lb

// Switch is what may be said on or off, or left to the configuration.
type Switch uint8

// The positions of a Switch.
const (
	SwitchDefault Switch = iota
	SwitchOn
	SwitchOff
)

// Health is how a Service treats backends that connections say something of.
type Health struct {
	// Passive says whether suspects are avoided: backends that did not take
	// several connections in a row.
	Passive Switch
	// SlowStart is for how many seconds a backend that is new or has come back
	// gets fewer connections than the others; 0 is not at all.
	SlowStart uint32
	// Probe is how backends are asked, the zero value for not at all.
	Probe Probe
}

// Avoids says whether suspects are avoided, where a Service that does not say so
// does what is usual. To ask for probes is to say so.
func (h Health) Avoids(usual bool) bool {
	return h.Passive == SwitchOn || h.Passive == SwitchDefault && (usual || h.Probe.Kind != NoProbe)
}
