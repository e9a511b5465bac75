package datapath_test

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/headgate/headgate/pkg/datapath"
	"github.com/headgate/headgate/tests/testenv"
)

// The kernel itself says whether it knows the flag: the releases of one line differ.
func TestTheKernelIsAskedWhetherItKnowsChecksumsOfIPv6(t *testing.T) {
	testenv.Need(t)
	var uname unix.Utsname
	if err := unix.Uname(&uname); err != nil {
		t.Fatal(err)
	}
	flag := datapath.IP6CsumFlag()
	if release := unix.ByteSliceToString(uname.Release[:]); flag == 0 && !datapath.OlderThan(release, "6.16") {
		t.Errorf("Linux %s knows no checksums of IPv6, want it to", release)
	}
}
