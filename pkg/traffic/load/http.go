package load

import (
	"bytes"
	"fmt"
	"strconv"
)

// maxHead bounds the head of an HTTP answer.
const maxHead = 16 << 10

// httpReader reads answers of HTTP/1.1 (RFC 9112).
type httpReader struct {
	header string // that says who answered
	head   []byte // status line and headers, until they are whole
	body   bool   // the head is whole
	chunks chunkReader
	left   int64 // bytes of the body to come; -1: up to the end of the stream, -2: chunks
	name   []byte
	close  bool
}

func (r *httpReader) begin(uint64) {
	r.head, r.body, r.left, r.close, r.name, r.chunks = r.head[:0], false, 0, false, r.name[:0], chunkReader{}
}
func (r *httpReader) last() bool      { return r.close }
func (r *httpReader) backend() []byte { return r.name }

func (r *httpReader) take(data []byte) (bool, error) {
	if !r.body {
		before := len(r.head)
		r.head = append(r.head, data[:min(len(data), maxHead-before)]...)
		end := bytes.Index(r.head, []byte("\r\n\r\n"))
		if end < 0 {
			if len(r.head) == maxHead {
				return false, fmt.Errorf("%w: a head of more than %d bytes", errAnswer, maxHead)
			}
			return false, nil
		}
		r.head = r.head[:end+2]
		data = data[end+4-before:]
		interim, err := r.parseHead()
		if err != nil {
			return false, err
		}
		if interim { // 100 Continue and the like: the answer proper follows
			r.begin(0)
			return r.take(data)
		}
		r.body = true
	}
	return r.takeBody(data)
}

func (r *httpReader) takeBody(data []byte) (bool, error) {
	switch {
	case r.left == -2:
		return r.chunks.take(data)
	case r.left < 0:
		return false, fmt.Errorf("%w: neither Content-Length nor chunks", errAnswer)
	case int64(len(data)) > r.left:
		return false, fmt.Errorf("%w: more than its Content-Length", errAnswer)
	}
	r.left -= int64(len(data))
	return r.left == 0, nil
}

// parseHead returns whether the answer is an interim one.
func (r *httpReader) parseHead() (interim bool, err error) {
	line, rest, _ := bytes.Cut(r.head, []byte("\r\n"))
	version, status, _ := bytes.Cut(line, []byte(" "))
	code, err := strconv.Atoi(string(status[:min(3, len(status))]))
	if err != nil || !bytes.HasPrefix(version, []byte("HTTP/1.")) {
		return false, fmt.Errorf("%w: no HTTP: %.40q", errAnswer, line)
	}
	if code >= 400 {
		return false, fmt.Errorf("%w: HTTP status %d", errAnswer, code)
	}
	r.left = -1
	r.close = bytes.Equal(version, []byte("HTTP/1.0"))
	for len(rest) > 0 {
		line, rest, _ = bytes.Cut(rest, []byte("\r\n"))
		key, value, _ := bytes.Cut(line, []byte(":"))
		if err := r.parseHeader(key, bytes.TrimSpace(value)); err != nil {
			return false, err
		}
	}
	if code == 204 || code == 304 {
		r.left = 0
	}
	return code < 200, nil
}

func (r *httpReader) parseHeader(key, value []byte) error {
	switch {
	case bytes.EqualFold(key, []byte("Content-Length")):
		n, err := strconv.ParseInt(string(value), 10, 64)
		if err != nil || n < 0 {
			return fmt.Errorf("%w: Content-Length %.20q", errAnswer, value)
		}
		if r.left != -2 {
			r.left = n
		}
	case bytes.EqualFold(key, []byte("Transfer-Encoding")):
		r.left = -2
	case bytes.EqualFold(key, []byte("Connection")):
		r.close = bytes.EqualFold(value, []byte("close"))
	case bytes.EqualFold(key, []byte(r.header)):
		r.name = append(r.name[:0], value...)
	}
	return nil
}

// chunkReader skips a chunked body.
type chunkReader struct {
	line  []byte // of a size or a trailer, until it is whole
	left  int64  // of the present chunk with the line break behind it
	final bool   // the last chunk has come, trailers follow
}

func (r *chunkReader) take(data []byte) (bool, error) {
	for len(data) > 0 {
		if r.left > 0 {
			n := min(r.left, int64(len(data)))
			r.left -= n
			data = data[n:]
			continue
		}
		end := bytes.IndexByte(data, '\n')
		if end < 0 {
			r.line = append(r.line, data...)
			if len(r.line) > maxHead {
				return false, fmt.Errorf("%w: a chunk without size", errAnswer)
			}
			return false, nil
		}
		line := bytes.TrimSpace(append(r.line, data[:end]...))
		data = data[end+1:]
		r.line = r.line[:0]
		if r.final {
			if len(line) == 0 {
				return true, nil
			}
			continue // a trailer
		}
		text, _, _ := bytes.Cut(line, []byte(";"))
		size, err := strconv.ParseInt(string(text), 16, 62)
		if err != nil || size < 0 {
			return false, fmt.Errorf("%w: chunk of size %.20q", errAnswer, text)
		}
		r.final = size == 0
		r.left = size + 2
		if r.final {
			r.left = 0
		}
	}
	return false, nil
}
