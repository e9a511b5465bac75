package netdev

import (
	"errors"
	"testing"

	"github.com/vishvananda/netlink"
)

func TestAListThatChangesIsReadAgain(t *testing.T) {
	other := errors.New("other")
	for _, tc := range []struct {
		name  string
		fails int // readings that are interrupted
		err   error
		reads int
	}{
		{"at once", 0, nil, 1},
		{"in the end", 3, nil, 4},
		{"never whole", dumpTries, nil, dumpTries},
		{"not after another error", 1, other, 2},
	} {
		t.Run(tc.name, func(t *testing.T) {
			reads := 0
			list, err := dump(func() ([]int, error) {
				if reads++; reads <= tc.fails {
					return []int{reads}, netlink.ErrDumpInterrupted
				}
				return []int{reads}, tc.err
			})
			if !errors.Is(err, tc.err) || reads != tc.reads || len(list) != 1 || list[0] != reads {
				t.Errorf("got %v, %v after %d readings, want %v after %d", list, err, reads, tc.err, tc.reads)
			}
		})
	}
}
