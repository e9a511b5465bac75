package controlplane

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"

	"github.com/headgate/headgate/pkg/traffic"
)

// Client speaks JSON with the API server.
type Client struct {
	http  *http.Client
	url   string
	token string
}

// StatusError is an answer that is none of success.
type StatusError struct {
	Code    int
	Message string
}

// Error implements error.
func (e *StatusError) Error() string { return fmt.Sprintf("status %d: %s", e.Code, e.Message) }

// newClient returns a client whose connections are in a namespace.
func newClient(ns *traffic.Namespace, token string) *Client {
	return &Client{url: ServerURL, token: token, http: &http.Client{Transport: &http.Transport{
		DialContext:         Dialer(ns),
		ForceAttemptHTTP2:   true,
		TLSClientConfig:     &tls.Config{InsecureSkipVerify: true}, // a loopback device of our own
		MaxIdleConnsPerHost: 64,
	}}}
}

// Dialer returns a function that connects within a namespace, for http.Transport.
func Dialer(ns *traffic.Namespace) func(ctx context.Context, network, address string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (conn net.Conn, err error) {
		err = ns.Do(func() error {
			var d net.Dialer
			conn, err = d.DialContext(ctx, network, address)
			return err
		})
		return conn, err
	}
}

// Do sends a request. The body is written as JSON unless it is bytes; the answer
// is read into an object unless that is nil. An answer that is none of success is
// a *StatusError.
func (c *Client) Do(ctx context.Context, method, path, contentType string, body, into any) error {
	answer, err := c.Open(ctx, method, path, contentType, body)
	if err != nil {
		return fmt.Errorf("%s %s: %w", method, path, err)
	}
	defer answer.Close()
	if into == nil {
		_, err = io.Copy(io.Discard, answer)
		return err
	}
	if err := json.NewDecoder(answer).Decode(into); err != nil {
		return fmt.Errorf("%s %s: read the answer: %w", method, path, err)
	}
	return nil
}

// Open sends a request and returns the answer, such as the stream of a watch.
func (c *Client) Open(ctx context.Context, method, path, contentType string, body any) (io.ReadCloser, error) {
	content, ready := body.([]byte)
	if !ready && body != nil {
		var err error
		if content, err = json.Marshal(body); err != nil {
			return nil, err
		}
	}
	req, err := http.NewRequestWithContext(ctx, method, c.url+path, bytes.NewReader(content))
	if err != nil {
		return nil, err
	}
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	answer, err := c.http.Do(req)
	if err != nil {
		return nil, err
	}
	if answer.StatusCode >= 300 {
		defer answer.Body.Close()
		text, _ := io.ReadAll(io.LimitReader(answer.Body, 4096))
		return nil, &StatusError{answer.StatusCode, string(text)}
	}
	return answer.Body, nil
}
