package programs

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
)

// haproxy connects from the addresses of its clients to a server behind its pod, which closes connections
// from the pod itself.
var haproxy = program{
	name: "transparent haproxy", needs: []string{"haproxy", "nft", "ip", "systemd-socket-activate", "bash", "perl"}, port: 8080,
	serve: func(r *rig) {
		config := filepath.Join(r.dir, "haproxy.cfg")
		text := `defaults
  mode tcp
  timeout connect 5s
  timeout client 30s
  timeout server 30s
listen service
  bind SERVER:8080
  source 0.0.0.0 usesrc clientip
  server behind BEHIND:8080
`
		text = strings.NewReplacer("SERVER", serverAddr.String(), "BEHIND", behindAddr.String()).Replace(text)
		if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
			r.t.Fatal(err)
		}
		if err := r.run("server", "nft", "table ip programs { chain answers { type filter hook prerouting priority mangle; socket transparent 1 meta mark set 1; }; }"); err != nil {
			r.t.Skipf("this kernel has no rules for transparent sockets (CONFIG_NFT_SOCKET): %v", err)
		}
		r.must("server", "ip", "rule", "add", "fwmark", "1", "lookup", "100")
		r.must("server", "ip", "route", "add", "local", "default", "dev", "lo", "table", "100")
		behind := netip.AddrPortFrom(behindAddr, 8080)
		r.serve("behind", behind, "systemd-socket-activate", "--listen", behind.String(), "--accept", "--inetd",
			"/usr/bin/perl", "-MSocket", "-e", `exec "cat" if inet_ntoa((sockaddr_in(getpeername(STDIN)))[1]) ne $ARGV[0]`, serverAddr.String())
		r.serve("server", r.server(8080), "haproxy", "-db", "-f", config)
	},
	ask: func(c *client) error { return c.talks(c.at) },
}
