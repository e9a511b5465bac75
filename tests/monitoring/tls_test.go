package monitoring_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Prometheus verifies the agent, also after its certificate was renewed, and while that cannot be used.
func TestMetricsWithTLS(t *testing.T) {
	beside(t)
	ca, dir := newAuthority(t), t.TempDir()
	certFile, keyFile := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	ca.issue(t, 1, certFile, keyFile)
	a, metrics := newAgent(t, "--metrics-tls-cert-file", certFile, "--metrics-tls-key-file", keyFile)
	a.Start()
	p := startPrometheusThat(t, map[string]any{"scheme": "https", "tls_config": map[string]any{"ca_file": ca.file}}, metrics)
	if got := serialAt(t, metrics); got != 1 {
		t.Errorf("the agent shows certificate %d, want 1", got)
	}
	ca.issue(t, 2, certFile, keyFile)
	p.eventually("the agent shows the certificate that is new", func() bool { return serialAt(t, metrics) == 2 })
	if err := os.WriteFile(certFile, []byte("no certificate"), 0o600); err != nil {
		t.Fatal(err)
	}
	p.eventually("the agent says what is wrong, and shows the certificate from before", func() bool {
		return serialAt(t, metrics) == 2 && strings.Contains(a.Log.String(), "certificate from before")
	})
	p.isQuiet()
}

// authority signs certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	file string // its certificate
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(100), Subject: pkix.Name{CommonName: "ca"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	a := &authority{cert: template, key: newKey(t), file: filepath.Join(t.TempDir(), "ca.crt")}
	writePEM(t, a.file, "CERTIFICATE", a.sign(t, template, a.key))
	return a
}

// issue writes a certificate for loopback, with a number, and its key.
func (a *authority) issue(t *testing.T, serial int64, certFile, keyFile string) {
	t.Helper()
	key := newKey(t)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	cert := a.sign(t, &x509.Certificate{
		SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: "headgate"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}, key)
	writePEM(t, certFile, "CERTIFICATE", cert)
	writePEM(t, keyFile, "PRIVATE KEY", private)
}

func (a *authority) sign(t *testing.T, template *x509.Certificate, key *ecdsa.PrivateKey) []byte {
	t.Helper()
	cert, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func writePEM(t *testing.T, file, kind string, bytes []byte) {
	t.Helper()
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: bytes}), 0o600); err != nil {
		t.Fatal(err)
	}
}

// serialAt returns the number of the certificate that a server shows.
func serialAt(t *testing.T, address string) int64 {
	t.Helper()
	conn, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // Prometheus verifies it
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	return conn.ConnectionState().PeerCertificates[0].SerialNumber.Int64()
}
