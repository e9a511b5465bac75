package programs

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

const (
	logPort   = 5514
	logTo     = "HEADGATE_LOG_TO" // makes this program a client written in Go
	arrival   = 2 * time.Second   // how long lines may take to come to another backend
	noBackend = time.Second
	interval  = 200 * time.Millisecond // between two lines of a program
)

// logger sends each line of its input over UDP, and connects its socket no more than once.
type logger struct {
	name string
	// args are the program and its arguments, for an address and a path where it may have files.
	args func(at netip.AddrPort, files string) []string
}

// script is a logger that is told the host and the port.
func script(name string, args ...string) logger {
	return logger{name, func(at netip.AddrPort, _ string) []string {
		return append(args, at.Addr().String(), fmt.Sprint(at.Port()))
	}}
}

// daemon is a logger that a shell script starts with its configuration.
func daemon(name, start, config string) logger {
	return logger{name, func(at netip.AddrPort, files string) []string {
		text := strings.NewReplacer("FILES", files, "HOST", at.Addr().String(), "PORT", fmt.Sprint(at.Port()), "AT", at.String())
		if err := os.WriteFile(files+".conf", []byte(text.Replace(config)), 0o600); err != nil {
			return []string{"echo", err.Error()}
		}
		return []string{"bash", "-c", text.Replace(start)}
	}}
}

// requests asks a web server for a path by each line, over one connection.
const requests = ` &
until [[ -S FILES.sock ]]; do sleep 0.1; done
while read -r line; do printf 'GET %s HTTP/1.1\r\nHost: a\r\n\r\n' "$line"; done | nc -U FILES.sock >FILES.answers`

// refused names the logger that connects again if a datagram is refused: Headgate refuses connect() to a Service
// without endpoints, and rules refuse only what it sends.
const refused = "logger/pod"

// Java is left out: a runtime for it is large.
var loggers = []logger{
	script("bash", "bash", "-c", `exec 3>/dev/udp/$0/$1; while read -r line; do echo "$line" >&3; done`),
	{"socat", func(at netip.AddrPort, _ string) []string {
		return []string{"socat", "-u", "STDIN", "UDP:" + at.String()}
	}},
	script("nc", "nc", "-u"),
	script("python3", "python3", "-c", `import socket, sys
host, port = sys.argv[1:]
s = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM)
s.connect((host, int(port)))
for line in sys.stdin:
    try: s.send(line.encode())
    except OSError: pass`),
	script("node", "node", "-e", `const [host, port] = process.argv.slice(1)
const s = require("dgram").createSocket(host.includes(":") ? "udp6" : "udp4")
s.on("error", () => {})
s.connect(port, host, () => require("readline").createInterface({input: process.stdin}).on("line", line => s.send(line, () => {})))`),
	{"logger", func(at netip.AddrPort, _ string) []string {
		return []string{"logger", "-d", "-n", at.Addr().String(), "-P", fmt.Sprint(at.Port())}
	}},
	{"go", func(at netip.AddrPort, _ string) []string {
		self, _ := os.Executable() // there is one
		return []string{"env", logTo + "=" + at.String(), self}
	}},
	daemon("nginx", "nginx -c FILES.conf"+requests, `daemon off;
user root;
pid FILES.pid;
error_log stderr;
events {}
http {
  client_body_temp_path FILES.body;
  proxy_temp_path FILES.proxy;
  fastcgi_temp_path FILES.fastcgi;
  uwsgi_temp_path FILES.uwsgi;
  scgi_temp_path FILES.scgi;
  log_format path $uri;
  access_log syslog:server=AT path;
  server { listen unix:FILES.sock; return 200; }
}
`),
	daemon("haproxy", "haproxy -db -f FILES.conf"+requests, `defaults
  mode http
  timeout client 1m
frontend a
  bind unix@FILES.sock
  log AT format raw local0
  log-format "%HU"
  http-request return status 200
`),
	daemon("rsyslogd", `rsyslogd -n -i NONE -f FILES.conf &
until [[ -S FILES.sock ]]; do sleep 0.1; done
exec logger -u FILES.sock`, `module(load="imuxsock" SysSock.Use="off")
input(type="imuxsock" Socket="FILES.sock" RateLimit.Interval="0")
action(type="omfwd" target="HOST" port="PORT" protocol="udp" action.resumeRetryCount="-1" action.resumeInterval="1")
`),
}

// logs sends the lines of the input to an address, whatever becomes of them.
func logs(at string) {
	c, err := net.Dial("udp", at)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		_, _ = c.Write(lines.Bytes())
	}
}

// receiver has the number of the last line that came to a backend, by the logger and its path.
type receiver struct {
	sync.Mutex
	last map[string]int
}

var logLine = regexp.MustCompile(`/([a-z0-9]+/[a-z]+)/(\d+)`)

// receive has a receiver listen on a machine, until the test ends.
func (r *rig) receive(machine string, at netip.Addr) *receiver {
	r.t.Helper()
	var c net.PacketConn
	err := r.topology.Namespace(machine).Do(func() (err error) {
		c, err = net.ListenPacket("udp", netip.AddrPortFrom(at, r.port).String())
		return err
	})
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = c.Close() })
	to := &receiver{last: map[string]int{}}
	go func() {
		for buf := make([]byte, 1<<16); ; {
			n, _, err := c.ReadFrom(buf)
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if said := logLine.FindSubmatch(buf[:n]); said != nil {
				to.Lock()
				to.last[string(said[1])], _ = strconv.Atoi(string(said[2]))
				to.Unlock()
			}
		}
	}()
	return to
}

// lineNumber is that of the last line which loggers were told.
var lineNumber atomic.Int64

// logging are all loggers by all paths, which are told numbered lines.
type logging struct {
	processes map[string]*process // by logger and path
	failed    map[string]error
}

// startLoggers starts them, and says lines until the context ends.
func (r *rig) startLoggers(ctx context.Context, files string) *logging {
	r.t.Helper()
	l := &logging{processes: map[string]*process{}, failed: map[string]error{}}
	for _, way := range paths {
		c := &client{rig: r, path: way, at: r.at(way, false), ctx: ctx}
		for _, program := range loggers {
			args := program.args(c.at, filepath.Join(files, program.name+way.name))
			p, err := c.start(args[0], args[1:]...)
			if err != nil {
				r.t.Fatal(err)
			}
			l.processes[program.name+"/"+way.name] = p
		}
	}
	go func() {
		for ctx.Err() == nil {
			n := lineNumber.Add(1)
			for name, p := range l.processes {
				_ = p.says(fmt.Sprintf("/%s/%d", name, n)) // it may have ended
			}
			time.Sleep(interval)
		}
	}()
	return l
}

// arrive waits until a receiver has new lines of all loggers. It notes those that it has none of.
func (l *logging) arrive(to *receiver, within time.Duration, when string) {
	from, start := int(lineNumber.Load()), time.Now()
	for name := range l.processes {
		for {
			to.Lock()
			last := to.last[name]
			to.Unlock()
			if last > from {
				break
			}
			if time.Since(start) > within {
				l.failed[name] = errors.Join(l.failed[name], fmt.Errorf("no line comes %s", when))
				break
			}
			time.Sleep(interval / 10)
		}
	}
}

// goOn has the backend change, and returns what has failed, by logger and path.
func (r *rig) goOn(server, spare *receiver, x string) map[string]error {
	r.t.Helper()
	balance := func(backends ...netip.Addr) {
		if err := r.proxy.balance(backends...); err != nil {
			r.t.Fatalf("%s: %v", x, err)
		}
	}
	balance(r.backend)
	ctx, cancel := context.WithCancel(context.Background())
	l := r.startLoggers(ctx, r.t.TempDir())
	defer func() {
		cancel()
		for _, p := range l.processes {
			<-p.over
		}
	}()
	l.arrive(server, patience, "at first")
	balance(r.spare)
	l.arrive(spare, arrival, "when another backend has replaced the first")
	balance()
	time.Sleep(noBackend)
	balance(r.backend)
	l.arrive(server, arrival, "when a backend comes after none")
	for name, p := range l.processes {
		select {
		case <-p.over:
			l.failed[name] = errors.Join(l.failed[name], fmt.Errorf("it has ended: %v: %s", p.ended, p.said))
		default:
		}
	}
	return l.failed
}

// compareLogs has loggers go on with each proxy. With Headgate those on the node always have to, others
// where they do by kube-proxy's rules: a refused datagram ends some.
func compareLogs(t *testing.T, s setting) {
	needs(t, "bash", "socat", "nc", "python3", "node", "logger", "nginx", "haproxy", "rsyslogd", "conntrack")
	r := newRig(t, s, logPort, 0)
	server, spare := r.receive("server", r.backend), r.receive("spare", r.spare)
	// A node sends an ICMP error for each datagram that it refuses, so that chance decides nothing.
	r.must("node-a", "bash", "-c", "echo 0 | tee /proc/sys/net/ipv4/icmp_ratelimit >/proc/sys/net/ipv6/icmp/ratelimit")
	var byRules map[string]error
	for _, x := range s.proxies {
		r.proxy = x.start(r)
		failed := r.goOn(server, spare, x.name)
		for _, program := range loggers {
			for _, way := range paths {
				name := program.name + "/" + way.name
				switch err := failed[name]; {
				case err == nil:
					t.Logf("%s, %s: goes on", x.name, name)
				case x.name == kubeProxy, name == refused, way.machine != "node-a" && byRules[name] != nil:
					t.Logf("%s, %s: does not go on: %v", x.name, name, err)
				default:
					t.Errorf("%s, %s: DOES NOT GO ON (by %s: %v): %v", x.name, name, kubeProxy, byRules[name], err)
				}
			}
		}
		if byRules == nil {
			byRules = failed
		}
		r.proxy.stop()
	}
}
