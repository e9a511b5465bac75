package httpserve

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"
)

// files are those of a certificate.
type files struct{ cert, key string }

// write replaces both by a new certificate for a name.
func (f files) write(t *testing.T, name string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for file, block := range map[string]*pem.Block{f.cert: {Type: "CERTIFICATE", Bytes: cert}, f.key: {Type: "PRIVATE KEY", Bytes: private}} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// serveTLS serves until the test ends, and returns where.
func serveTLS(t *testing.T, certificate *Certificate) string {
	t.Helper()
	address := make(chan string, 1)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- Run(ctx, Config{
			Address: "127.0.0.1:0", Certificate: certificate, HardFail: true,
			Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}),
			Listen: func(network, at string) (net.Listener, error) {
				l, err := net.Listen(network, at)
				if err == nil {
					address <- l.Addr().String()
				}
				return l, err
			},
		})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return <-address
}

// nameAt returns whose certificate a server shows.
func nameAt(t *testing.T, address string) string {
	t.Helper()
	conn, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // the test looks at whatever is shown
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	return conn.ConnectionState().PeerCertificates[0].Subject.CommonName
}

func TestACertificateIsReadAnewWhenItsFilesChange(t *testing.T) {
	dir := t.TempDir()
	f := files{filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")}
	f.write(t, "first")
	var reports atomic.Int32
	address := serveTLS(t, &Certificate{CertFile: f.cert, KeyFile: f.key, Report: func(error) { reports.Add(1) }})
	if got := nameAt(t, address); got != "first" {
		t.Errorf("shows %q", got)
	}
	f.write(t, "second, of another length")
	if got := nameAt(t, address); got != "second, of another length" {
		t.Errorf("after a change shows %q", got)
	}
	if err := os.WriteFile(f.key, []byte("no key"), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if got := nameAt(t, address); got != "second, of another length" {
			t.Errorf("with a broken key shows %q", got)
		}
	}
	if n := reports.Load(); n != 1 {
		t.Errorf("the broken key was reported %d times, want once", n)
	}
	if err := os.Remove(f.cert); err != nil {
		t.Fatal(err)
	}
	if got := nameAt(t, address); got != "second, of another length" {
		t.Errorf("without a file shows %q", got)
	}
	f.write(t, "third")
	if got := nameAt(t, address); got != "third" {
		t.Errorf("after all was mended shows %q", got)
	}
}

func TestNothingIsServedWithoutACertificate(t *testing.T) {
	dir := t.TempDir()
	f := files{filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")}
	certificate := &Certificate{CertFile: f.cert, KeyFile: f.key}
	err := Run(t.Context(), Config{Address: "127.0.0.1:0", Certificate: certificate, HardFail: true})
	if !errors.Is(err, ErrCertificate) || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("error %v, want one of a file that does not exist", err)
	}
}
