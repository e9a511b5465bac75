package serve

import (
	"bytes"
	"strconv"

	"github.com/headgate/headgate/pkg/traffic/wire"
)

// BackendHeader is the header of an HTTP answer that says who gives it.
const BackendHeader = "Headgate-Backend"

// takeHTTP is takeHead for HTTP: data is what has come, of which the head had
// some bytes before. A body is skipped by its Content-Length; chunked requests
// make no sense to us.
func (s *stream) takeHTTP(data []byte, before int) (rest []byte, whole, ok bool) {
	end := bytes.Index(s.head, []byte("\r\n\r\n"))
	if end < 0 {
		return nil, false, len(s.head) < maxHead
	}
	used := end + 4 - before
	s.head = s.head[:end+4]
	if length := header(s.head, "Content-Length"); length != nil {
		n, err := strconv.Atoi(string(length))
		if err != nil || n < 0 {
			return nil, false, false
		}
		s.skip = n
	}
	return data[used:], true, header(s.head, "Transfer-Encoding") == nil
}

// composeHTTP answers with the server's name, and as many bytes as the query
// asks for: GET /?bytes=1000.
func (l *loop) composeHTTP(s *stream) []byte {
	length := 0
	line, _, _ := bytes.Cut(s.head, []byte("\r\n"))
	if _, query, found := bytes.Cut(line, []byte("?bytes=")); found {
		number, _, _ := bytes.Cut(query, []byte(" "))
		if n, err := strconv.Atoi(string(number)); err == nil {
			length = min(max(n, 0), wire.MaxMessage)
		}
	}
	s.ending = bytes.EqualFold(header(s.head, "Connection"), []byte("close"))
	answer := append(l.answer[:0], "HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\n"+BackendHeader+": "...)
	answer = append(answer, s.endpoint.name()...)
	answer = append(answer, "\r\nContent-Length: "...)
	answer = strconv.AppendInt(answer, int64(length), 10)
	if s.ending {
		answer = append(answer, "\r\nConnection: close"...)
	}
	answer = append(answer, "\r\n\r\n"...)
	if !bytes.HasPrefix(line, []byte("HEAD ")) {
		answer = append(answer, make([]byte, length)...)
	}
	l.answer = answer
	return answer
}

// header returns the value of a header in the head of a message, nil if it has
// none of the name.
func header(head []byte, name string) []byte {
	for len(head) > 0 {
		line, rest, _ := bytes.Cut(head, []byte("\r\n"))
		head = rest
		if key, value, found := bytes.Cut(line, []byte(":")); found && bytes.EqualFold(key, []byte(name)) {
			return bytes.TrimSpace(value)
		}
	}
	return nil
}
