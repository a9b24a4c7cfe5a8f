package store

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
)

// TLS names the files, in PEM, with which the parts of a cluster prove their names to each other. The zero value is no TLS.
type TLS struct {
	Cert, Key string // of this part; both for servers and for clients
	CA        string // that has signed the certificates of the other parts
}

// Config returns the configuration of a client; nil without TLS.
func (t TLS) Config() (*tls.Config, error) {
	if t == (TLS{}) {
		return nil, nil
	}
	if t.Cert == "" || t.Key == "" || t.CA == "" {
		return nil, errors.New("TLS needs a certificate, its key, and the certificate of the authority that has signed the others")
	}
	pair, err := tls.LoadX509KeyPair(t.Cert, t.Key)
	if err != nil {
		return nil, fmt.Errorf("certificate %s: %w", t.Cert, err)
	}
	ca, err := os.ReadFile(t.CA)
	if err != nil {
		return nil, fmt.Errorf("authority: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(ca) {
		return nil, fmt.Errorf("authority %s: the file has no certificate in PEM", t.CA)
	}
	return &tls.Config{Certificates: []tls.Certificate{pair}, RootCAs: pool, MinVersion: tls.VersionTLS12}, nil
}
