package netns_test

import (
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// Connections end if their backend leaves, and not if the Service gives up the address by which
// they began.
func TestSocketsStayConnectedWhenTheirFrontendChanges(t *testing.T) {
	all := mustNode(t)
	all.setAddresses(nodeAddresses)
	for _, tc := range []struct{ name, asked, old, now string }{
		{"ClusterIP", "10.96.0.1:80", "10.96.0.1:80/", "10.96.0.2:80/"},
		{"ClusterIP, IPv6", "[fd00:96::1]:80", "[fd00:96::1]:80/", "[fd00:96::2]:80/"},
		{"port", "10.96.0.1:80", "10.96.0.1:80/", "10.96.0.1:81/"},
		{"NodePort", "192.0.2.1:30080", "0.0.0.0:30080/", "0.0.0.0:30081/"},
		{"NodePort, IPv6", "[2001:db8::1]:30080", "[::]:30080/", "[::]:30081/"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			n, k := all.anew(t), inet
			if strings.HasPrefix(tc.asked, "[") {
				k = inet6
			}
			for protocol, typ := range map[string]int{"TCP": unix.SOCK_STREAM, "UDP": unix.SOCK_DGRAM} {
				b := mustServe(t, k.pick("10.244.0.1:8080/", "[fd00:244::1]:8080/")+protocol)
				other := mustServe(t, k.pick("10.244.0.2:8080/", "[fd00:244::2]:8080/")+protocol)
				n.set("web", knowing(tc.old+protocol, b))
				c := mustTalk(t, k, typ, tc.asked)
				n.set("web", knowing(tc.now+protocol, b, other))
				n.sweep()
				n.destroyLost()
				c.wantAlive(t, "the frontend is another one")
				c.s.wantPeer(at(tc.asked), "the frontend is another one")
				n.set("web", knowing(tc.now+protocol, other))
				n.sweep()
				n.destroyLost()
				if !c.s.ended() {
					t.Errorf("%s: the backend has left, and the socket was not told", protocol)
				}
				n.set("web")
			}
		})
	}
}
