package datapath_test

import "testing"

// An agent may die when its maps are in their place, and before it says so. The next one
// says it: else packets of lost connections would be dropped for good, and never answered by
// a reset.
func TestMapsThatAreInTheirPlaceHaveAllFlows(t *testing.T) {
	cfg := config(t)
	d := mustOpen(t, cfg)
	if err := d.Attach(); err != nil {
		t.Fatal(err)
	}
	if *d.FlowsMigrated() != 1 {
		t.Error("after a start the maps lack flows")
	}
	*d.FlowsMigrated() = 0
	d.Close()
	if d = mustOpen(t, cfg); *d.FlowsMigrated() != 1 {
		t.Error("after an agent that died the maps lack flows")
	}
}
