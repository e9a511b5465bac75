package main

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"
)

// api speaks to the API server as administrator.
type api struct{ client http.Client }

func (l *lab) newAPI() (*api, error) {
	ca, err := os.ReadFile(l.pki("ca.crt"))
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	admin, err := tls.LoadX509KeyPair(l.pki("admin.crt"), l.pki("admin.key"))
	if err != nil {
		return nil, err
	}
	config := &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{admin}}
	return &api{http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{TLSClientConfig: config}}}, nil
}

// get reads an object or a list.
func (a *api) get(path string, into any) error { return a.call(http.MethodGet, path, nil, into) }

// patch merges something into an object.
func (a *api) patch(path string, merge any) error {
	body, err := json.Marshal(merge)
	if err != nil {
		return err
	}
	return a.call(http.MethodPatch, path, body, nil)
}

func (a *api) call(method, path string, body []byte, into any) error {
	req, err := http.NewRequest(method, server+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/merge-patch+json")
	resp, err := a.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s %s: %s: %.200s", method, path, resp.Status, answer)
	}
	if into == nil {
		return nil
	}
	return json.Unmarshal(answer, into)
}
