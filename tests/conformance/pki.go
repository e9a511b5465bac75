package main

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"time"
)

// authority signs the certificates of a cluster.
type authority struct {
	lab  *lab
	name string
	key  crypto.Signer
	cert *x509.Certificate
}

func (l *lab) newAuthority(name string) (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := certificate(name, "")
	template.IsCA, template.BasicConstraintsValid = true, true
	template.KeyUsage |= x509.KeyUsageCertSign
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	return &authority{l, name, key, cert}, l.store(name, key, der)
}

// issue writes NAME.key and NAME.crt for a user of a group, or for a server
// with these addresses and names.
func (a *authority) issue(name, user, group string, hosts ...string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	template := certificate(user, group)
	for _, h := range hosts {
		if ip := net.ParseIP(h); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, h)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		return err
	}
	return a.lab.store(name, key, der)
}

func certificate(user, group string) *x509.Certificate {
	serial, _ := rand.Int(rand.Reader, big.NewInt(1<<62))
	subject := pkix.Name{CommonName: user}
	if group != "" {
		subject.Organization = []string{group}
	}
	return &x509.Certificate{
		SerialNumber: serial, Subject: subject,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().AddDate(1, 0, 0),
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}
}

func (l *lab) store(name string, key crypto.Signer, der []byte) error {
	if err := os.WriteFile(l.pki(name+".crt"), block("CERTIFICATE", der), 0o644); err != nil {
		return err
	}
	return l.storeKey(name, key)
}

func (l *lab) storeKey(name string, key crypto.Signer) error {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	return os.WriteFile(l.pki(name+".key"), block("PRIVATE KEY", der), 0o600)
}

func (l *lab) pki(name string) string { return l.in("pki", name) }

func block(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

// serviceAccountKeys writes what tokens of pods are signed with.
func (l *lab) serviceAccountKeys() error {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return err
	}
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return err
	}
	if err := os.WriteFile(l.pki("tokens.pub"), block("PUBLIC KEY", public), 0o644); err != nil {
		return err
	}
	return l.storeKey("tokens", key)
}

// selfSigned returns a key and a certificate as PEM.
func selfSigned(host string) (key, cert []byte, err error) {
	k, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return nil, nil, err
	}
	template := certificate(host, "")
	template.NotAfter = time.Now().AddDate(10, 0, 0)
	der, err := x509.CreateCertificate(rand.Reader, template, template, k.Public(), k)
	if err != nil {
		return nil, nil, err
	}
	return block("RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(k)), block("CERTIFICATE", der), nil
}

// kubeconfig writes NAME.kubeconfig for the user of that certificate.
func (l *lab) kubeconfig(name string) error {
	fields := map[string]any{"Server": server, "User": name}
	for field, file := range map[string]string{"CA": "ca.crt", "Cert": name + ".crt", "Key": name + ".key"} {
		data, err := os.ReadFile(l.pki(file))
		if err != nil {
			return fmt.Errorf("kubeconfig of %s: %w", name, err)
		}
		fields[field] = base64.StdEncoding.EncodeToString(data)
	}
	return l.render("kubeconfig.yaml", l.in(name+".kubeconfig"), fields)
}
