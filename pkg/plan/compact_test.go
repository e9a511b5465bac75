package plan

import (
	"testing"
	"unsafe"

	"github.com/headgate/headgate/pkg/lb"
)

func TestACompactAddressIsTheSameAddress(t *testing.T) {
	for _, text := range []string{"10.0.0.1:80/TCP", "0.0.0.0:30080/UDP", "[fd00::1]:65535/SCTP", "[::]:1/TCP"} {
		at := mustAddrPort(t, text)
		if got := compacted(at).addrPort(); got != at {
			t.Errorf("%s becomes %s", at, got)
		}
	}
	if size := unsafe.Sizeof(compact{}); size >= unsafe.Sizeof(lb.AddrPort{}) || size > 20 {
		t.Errorf("it takes %d bytes", size)
	}
	if size := unsafe.Sizeof(backendRef{}); size > 24 {
		t.Errorf("a backend takes %d bytes", size)
	}
}
