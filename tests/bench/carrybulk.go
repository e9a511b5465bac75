package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"

	"github.com/headgate/headgate/pkg/traffic"
)

// bulkServer takes in or gives as many bytes as it is asked to.
type bulkServer struct{ net.Listener }

// A bulkAsk is what a connection begins with.
type bulkAsk struct {
	Size int64
	Up   bool // from the client
}

// bulkBytes go in one system call.
const bulkBytes = 256 << 10

// serveBulk serves in a network namespace.
func serveBulk(in *traffic.Namespace) (s *bulkServer, err error) {
	err = in.Do(func() error {
		var c net.ListenConfig
		c.SetMultipathTCP(false)
		l, err := c.Listen(context.Background(), "tcp4", fmt.Sprint(":", backendPort))
		s = &bulkServer{l}
		return err
	})
	if err != nil {
		return nil, err
	}
	go func() {
		for {
			conn, err := s.Accept()
			if err != nil {
				return
			}
			go serveOne(conn)
		}
	}()
	return s, nil
}

// serveOne does what one connection asks for. What fails shows at the client.
func serveOne(conn net.Conn) {
	defer conn.Close()
	var a bulkAsk
	if err := binary.Read(conn, binary.BigEndian, &a); err != nil {
		return
	}
	if !a.Up {
		_ = give(conn, a.Size)
	} else if take(conn, a.Size) == nil {
		_, _ = conn.Write([]byte{1})
	}
}

// ask moves so many bytes over a connection, until all have arrived.
func ask(conn net.Conn, size int64, up bool) error {
	if err := binary.Write(conn, binary.BigEndian, bulkAsk{size, up}); err != nil {
		return err
	}
	if !up {
		return take(conn, size)
	}
	if err := give(conn, size); err != nil {
		return err
	}
	return take(conn, 1)
}

func give(to io.Writer, size int64) error {
	b := make([]byte, bulkBytes)
	for ; size > 0; size -= int64(len(b)) {
		b = b[:min(size, int64(len(b)))]
		if _, err := to.Write(b); err != nil {
			return err
		}
	}
	return nil
}

func take(from io.Reader, size int64) error {
	b := make([]byte, bulkBytes)
	for size > 0 {
		n, err := from.Read(b[:min(size, int64(len(b)))])
		if size -= int64(n); err != nil && size > 0 {
			return err
		}
	}
	return nil
}
