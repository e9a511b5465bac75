package network

import (
	"bufio"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"strings"
	"time"
)

// serve runs a server on a pod, which says its name and whom it talks to.
//
//	TCP  "who\n" → "name address\n"; "give N\n" → N bytes of noise; "take N\n…" → their SHA-256
//	UDP  anything → "name address " and the same again
func (n *node) serve() {
	n.tb.Helper()
	n.pod.serveAs(fmt.Sprintf("pod-%d", n.number))
}

// serveAs runs it under a name.
func (h *host) serveAs(name string) {
	h.tb.Helper()
	h.do(func() error {
		var config net.ListenConfig
		config.SetMultipathTCP(false)
		listener, err := config.Listen(context.Background(), "tcp", ":8080")
		if err != nil {
			return err
		}
		h.tb.Cleanup(func() { listener.Close() })
		go accept(listener, name)
		// One socket for each family, so that answers come from the address
		// that was asked.
		for _, network := range []string{"udp4", "udp6"} {
			conn, err := config.ListenPacket(context.Background(), network, ":8080")
			if err != nil {
				return err
			}
			h.tb.Cleanup(func() { conn.Close() })
			go answer(conn.(*net.UDPConn), name)
		}
		return nil
	})
}

func accept(listener net.Listener, name string) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		go converse(conn, name)
	}
}

func converse(conn net.Conn, name string) {
	defer conn.Close()
	from := conn.RemoteAddr().(*net.TCPAddr).AddrPort().Addr().Unmap()
	for r := bufio.NewReader(conn); ; {
		line, err := r.ReadString('\n')
		if err != nil {
			return
		}
		var n int64
		switch {
		case strings.HasPrefix(line, "who"):
			fmt.Fprintf(conn, "%s %s\n", name, from)
		case scan(line, "give %d", &n):
			_, _ = io.CopyN(conn, noise(), n)
		case scan(line, "take %d", &n):
			sum := sha256.New()
			_, _ = io.CopyN(sum, r, n)
			fmt.Fprintf(conn, "%x\n", sum.Sum(nil))
		}
	}
}

func scan(line, format string, n *int64) bool {
	_, err := fmt.Sscanf(line, format, n)
	return err == nil
}

// noise is bytes without end, always the same.
func noise() io.Reader { return rand.NewChaCha8([32]byte{}) }

func answer(conn *net.UDPConn, name string) {
	b := make([]byte, 65536)
	for {
		n, from, err := conn.ReadFromUDPAddrPort(b)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue
		}
		text := fmt.Sprintf("%s %s ", name, from.Addr().Unmap())
		_, _ = conn.WriteToUDPAddrPort(append([]byte(text), b[:n]...), from)
	}
}

// dial connects from a machine.
func (h *host) dial(network string, to netip.AddrPort) (conn net.Conn, err error) {
	err = h.Do(func() error {
		conn, err = dial(network, to)
		return err
	})
	return conn, err
}

// dial connects from where the thread is.
func dial(network string, to netip.AddrPort) (net.Conn, error) {
	d := net.Dialer{Timeout: 3 * time.Second}
	d.SetMultipathTCP(false)
	conn, err := d.Dial(network, to.String())
	if err == nil {
		_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
	}
	return conn, err
}

// ask asks a server who it is and whom it sees, over a protocol.
func (h *host) ask(protocol string, to netip.AddrPort) (string, error) {
	conn, err := h.dial(protocol, to)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if protocol == "udp" {
		return exchange(conn, "hello")
	}
	return who(conn)
}

func who(conn net.Conn) (string, error) {
	if _, err := fmt.Fprintln(conn, "who"); err != nil {
		return "", err
	}
	line, err := bufio.NewReader(conn).ReadString('\n')
	return strings.TrimSpace(line), err
}

// exchange sends a datagram and returns what was put before it in the answer.
// It tries again: a lost datagram is no fault.
func exchange(conn net.Conn, payload string) (said string, err error) {
	for range 6 {
		if _, err = conn.Write([]byte(payload)); err != nil {
			continue
		}
		if said, err = answerTo(conn, payload); err == nil {
			return said, nil
		}
	}
	return "", err
}

// answerTo waits for the answer to a datagram, and returns what was put before it.
func answerTo(conn net.Conn, payload string) (string, error) {
	_ = conn.SetReadDeadline(time.Now().Add(500 * time.Millisecond))
	b := make([]byte, 65536)
	n, err := conn.Read(b)
	if err != nil {
		return "", err
	}
	said, whole := strings.CutSuffix(string(b[:n]), " "+payload)
	if !whole {
		return "", fmt.Errorf("%d bytes came back for %d", n, len(payload))
	}
	return said, nil
}

// transfer moves so many bytes one way and then the other, and compares their sums.
func (h *host) transfer(to netip.AddrPort, size int64) error {
	conn, err := h.dial("tcp", to)
	if err != nil {
		return err
	}
	defer conn.Close()
	r, want, err := take(conn, size)
	if err != nil {
		return err
	}
	received := sha256.New()
	fmt.Fprintf(conn, "give %d\n", size)
	if n, err := io.CopyN(received, r, size); err != nil {
		return fmt.Errorf("receive: %w after %d bytes", err, n)
	}
	if got := fmt.Sprintf("%x", received.Sum(nil)); got != want {
		return fmt.Errorf("what was received has sum %s, want %s", got, want)
	}
	return nil
}

// upload has a server take so many bytes.
func (h *host) upload(to netip.AddrPort, size int64) error {
	conn, err := h.dial("tcp", to)
	if err != nil {
		return err
	}
	defer conn.Close()
	_, _, err = take(conn, size)
	return err
}

// take has a server take so many bytes, and returns their sum, which the server has said, and what
// it says next.
func take(conn net.Conn, size int64) (*bufio.Reader, string, error) {
	fmt.Fprintf(conn, "take %d\n", size)
	sent := sha256.New()
	if _, err := io.CopyN(conn, io.TeeReader(noise(), sent), size); err != nil {
		return nil, "", fmt.Errorf("send: %w", err)
	}
	r, want := bufio.NewReader(conn), fmt.Sprintf("%x", sent.Sum(nil))
	switch line, err := r.ReadString('\n'); {
	case err != nil:
		return nil, "", fmt.Errorf("wait for the sum of what was sent: %w", err)
	case strings.TrimSpace(line) != want:
		return nil, "", fmt.Errorf("what was sent arrived with sum %q, want %s", line, want)
	}
	return r, want, nil
}
