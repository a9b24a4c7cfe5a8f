package storetest

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"millrace/control/cluster/internal/store"
)

// Certificates makes an authority, and a certificate of this machine for servers and clients. The files are removed at the end of the test.
func Certificates(t *testing.T) store.TLS {
	t.Helper()
	dir := t.TempDir()
	caKey, key := newKey(t), newKey(t)
	ca := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test authority"}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	machine := &x509.Certificate{SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "localhost"}, NotBefore: ca.NotBefore, NotAfter: ca.NotAfter,
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		DNSNames:    []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	files := store.TLS{Cert: filepath.Join(dir, "cert.pem"), Key: filepath.Join(dir, "key.pem"), CA: filepath.Join(dir, "ca.pem")}
	write(t, files.CA, "CERTIFICATE", sign(t, ca, ca, caKey, caKey))
	write(t, files.Cert, "CERTIFICATE", sign(t, machine, ca, key, caKey))
	bytes, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	write(t, files.Key, "PRIVATE KEY", bytes)
	return files
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func sign(t *testing.T, what, by *x509.Certificate, key, byKey *ecdsa.PrivateKey) []byte {
	t.Helper()
	bytes, err := x509.CreateCertificate(rand.Reader, what, by, &key.PublicKey, byKey)
	if err != nil {
		t.Fatal(err)
	}
	return bytes
}

func write(t *testing.T, path, kind string, bytes []byte) {
	t.Helper()
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: bytes}), 0o600); err != nil {
		t.Fatal(err)
	}
}

// Stranger fails if a client that should be refused reads something.
func Stranger(t *testing.T, open func() (store.Store, error)) {
	t.Helper()
	if view, err := tryRead(t, open); err == nil {
		t.Errorf("a stranger has read %v", view)
	}
}

// Member fails if a client that should not be refused reads nothing.
func Member(t *testing.T, open func() (store.Store, error)) {
	t.Helper()
	if _, err := tryRead(t, open); err != nil {
		t.Error(err)
	}
}

func tryRead(t *testing.T, open func() (store.Store, error)) (store.View, error) {
	t.Helper()
	client, err := open()
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	return client.Read(ctx)
}
