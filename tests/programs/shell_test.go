package programs

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
)

// shell is bash that sends lines to an address and prints what comes back, and then how many bytes of a million do.
const shell = `exec 3<>/dev/tcp/$0/$1 || exit 1
while read -r line; do echo "$line" >&3; read -r answer <&3 && echo "$answer"; done
head -c 1000000 /dev/zero >&3 & echo "$(head -c 1000000 <&3 | wc -c) bytes"`

// talks has bash talk to an echo server, over one connection.
func (c *client) talks(at netip.AddrPort) error {
	p, err := c.start("bash", "-c", shell, at.Addr().String(), fmt.Sprint(at.Port()))
	if err != nil {
		return err
	}
	if err := c.echoed(p); err != nil {
		return err
	}
	_ = p.stdin.Close()
	if _, err := p.hears("1000000 bytes"); err != nil {
		return err
	}
	return p.ends()
}

// echoes has systemd start cat for each connection.
func (r *rig) echoes(machine string, at netip.AddrPort) {
	r.t.Helper()
	r.serve(machine, at, "systemd-socket-activate", "--listen", at.String(), "--accept", "--inetd", "/bin/cat")
}

func (r *rig) server(port uint16) netip.AddrPort { return netip.AddrPortFrom(serverAddr, port) }

var socketActivation = program{
	name: "socket activation", needs: []string{"systemd-socket-activate", "bash"}, port: 8080,
	serve: func(r *rig) { r.echoes("server", r.server(8080)) },
	ask:   func(c *client) error { return c.talks(c.at) },
}

// echoPort is that of an echo server beside sshd.
const echoPort = 7

// ssh talks over a session, a forward to a server beside sshd, and a forward by which sshd asks the Service itself.
var ssh = program{
	name: "ssh -L", needs: []string{"sshd", "ssh", "ssh-keygen", "systemd-socket-activate"}, port: 22,
	serve: serveSSH,
	ask: func(c *client) error {
		args := []string{"-F", "none", "-i", filepath.Join(c.dir, "client"), "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "-o", "BatchMode=yes",
			"-o", "ExitOnForwardFailure=yes", "-L", fmt.Sprintf("127.0.0.1:2001:%s:%d", serverAddr, echoPort), "-L", "127.0.0.1:2002:" + c.at.String(),
			"-p", fmt.Sprint(c.at.Port()), "root@" + c.at.Addr().String(), "cat"}
		session, err := c.start("ssh", args...)
		if err != nil {
			return err
		}
		if err := c.echoed(session); err != nil {
			return err
		}
		if err := c.talks(netip.MustParseAddrPort("127.0.0.1:2001")); err != nil {
			return fmt.Errorf("by the forward to a server beside sshd: %w", err)
		}
		banner, err := c.start("bash", "-c", "exec 3<>/dev/tcp/127.0.0.1/2002 && head -n 1 <&3")
		if err != nil {
			return err
		}
		if _, err := banner.hears("SSH-2.0"); err != nil {
			return fmt.Errorf("by the forward to the Service: %w", err)
		}
		if err := banner.ends(); err != nil {
			return err
		}
		return session.ends()
	},
}

func serveSSH(r *rig) {
	for _, name := range []string{"host", "client"} {
		r.must("server", "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", filepath.Join(r.dir, name))
	}
	config := strings.ReplaceAll(`HostKey DIR/host
AuthorizedKeysFile DIR/client.pub
PermitRootLogin prohibit-password
StrictModes no
UsePAM no
PidFile none
`, "DIR", r.dir)
	if err := os.WriteFile(filepath.Join(r.dir, "config"), []byte(config), 0o600); err != nil {
		r.t.Fatal(err)
	}
	if err := os.Mkdir("/run/sshd", 0o755); err == nil {
		r.t.Cleanup(func() { _ = os.Remove("/run/sshd") })
	}
	r.echoes("server", r.server(echoPort))
	r.serve("server", r.server(22), "/usr/sbin/sshd", "-D", "-e", "-f", filepath.Join(r.dir, "config"), "-o", "ListenAddress="+r.server(22).String())
}
