package datapath

import (
	"errors"
	"sync/atomic"
	"testing"
	"unsafe"
)

func TestACountEndsWhenMapsAreReplaced(t *testing.T) {
	var leave atomic.Bool
	slot := unsafe.Sizeof(headgateSocketSlot{})
	count := &tally{
		slots: &mapping[headgateSocketSlot]{mem: make([]byte, 70*slot), stride: slot, len: 70},
		flows: &flowTable{sets: &mapping[headgateFlowSet]{}}, leave: &leave, silent: &silence{},
	}
	if err := count.count(); err != nil {
		t.Errorf("a count that nothing stops: %v", err)
	}
	leave.Store(true)
	if err := count.count(); !errors.Is(err, errLeft) {
		t.Errorf("through slots: %v", err)
	}
	count.flows = someTable(70)
	if err := count.countFlows(); !errors.Is(err, errLeft) {
		t.Errorf("through flows: %v", err)
	}
}
