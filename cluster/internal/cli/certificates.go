package cli

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/netip"
	"os"
	"time"
)

const year = 365 * 24 * time.Hour

// authority signs the certificates of a cluster's servers.
type authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

func newKey(path string) (*ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	bytes, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	return key, writePEM(path, "PRIVATE KEY", bytes)
}

func writePEM(path, kind string, bytes []byte) error {
	return writeNew(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: bytes}))
}

// writeNew writes a file that only its owner may read, and that must not be there yet.
func writeNew(path string, text []byte) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	if _, err := file.Write(text); err != nil {
		file.Close()
		return err
	}
	return file.Close()
}

func template(name string, years time.Duration) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	return &x509.Certificate{SerialNumber: serial, Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(years * year), BasicConstraintsValid: true}, err
}

// newAuthority makes an authority, and writes ca.pem and ca.key.
func newAuthority(certificate, keyPath string) (*authority, error) {
	key, err := newKey(keyPath)
	if err != nil {
		return nil, err
	}
	ca, err := template("millrace cluster", 20)
	if err != nil {
		return nil, err
	}
	ca.IsCA, ca.KeyUsage = true, x509.KeyUsageCertSign
	bytes, err := x509.CreateCertificate(rand.Reader, ca, ca, &key.PublicKey, key)
	if err != nil {
		return nil, err
	}
	return &authority{ca, key}, writePEM(certificate, "CERTIFICATE", bytes)
}

// readAuthority reads what newAuthority has written.
func readAuthority(certificate, keyPath string) (*authority, error) {
	bytes, err := readPEM(certificate)
	if err != nil {
		return nil, err
	}
	ca, err := x509.ParseCertificate(bytes)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", certificate, err)
	}
	if bytes, err = readPEM(keyPath); err != nil {
		return nil, err
	}
	key, err := x509.ParsePKCS8PrivateKey(bytes)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", keyPath, err)
	}
	own, is := key.(*ecdsa.PrivateKey)
	if !is {
		return nil, fmt.Errorf("%s: the key is none that millctl cluster init has made", keyPath)
	}
	return &authority{ca, own}, nil
}

func readPEM(path string) ([]byte, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, fmt.Errorf("%s: the file has nothing in PEM", path)
	}
	return block.Bytes, nil
}

// sign makes a key and a certificate for a server's clients and servers.
func (a *authority) sign(name string, address netip.Addr, certificate, keyPath string) error {
	key, err := newKey(keyPath)
	if err != nil {
		return err
	}
	one, err := template(name, 10)
	if err != nil {
		return err
	}
	one.KeyUsage, one.ExtKeyUsage = x509.KeyUsageDigitalSignature, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	one.IPAddresses, one.DNSNames = []net.IP{address.AsSlice()}, []string{name}
	bytes, err := x509.CreateCertificate(rand.Reader, one, a.certificate, &key.PublicKey, a.key)
	if err != nil {
		return err
	}
	return writePEM(certificate, "CERTIFICATE", bytes)
}
