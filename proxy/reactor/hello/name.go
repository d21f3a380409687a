package hello

import (
	"bytes"
	"crypto/tls"
	"errors"
	"net"
	"time"
)

// ServerName returns the name of the server in a whole ClientHello, as Reader finds it, or "" if it
// has none. Package tls parses it, and nothing is decrypted or sent.
func ServerName(b []byte) (name string, err error) {
	found := false
	err = tls.Server(&replay{bytes.NewReader(b)}, &tls.Config{
		MinVersion: tls.VersionTLS12, // the end of this handshake has no meaning
		GetConfigForClient: func(h *tls.ClientHelloInfo) (*tls.Config, error) {
			name, found = h.ServerName, true
			return nil, errFound
		},
	}).Handshake()
	if found {
		return name, nil
	}
	return "", err
}

// errFound ends the handshake of ServerName.
var errFound = errors.New("hello: the name is known")

// replay is a net.Conn that only reads, and drops what is written.
type replay struct{ *bytes.Reader }

func (r *replay) Write(b []byte) (int, error)      { return len(b), nil }
func (r *replay) Close() error                     { return nil }
func (r *replay) LocalAddr() net.Addr              { return nil }
func (r *replay) RemoteAddr() net.Addr             { return nil }
func (r *replay) SetDeadline(time.Time) error      { return nil }
func (r *replay) SetReadDeadline(time.Time) error  { return nil }
func (r *replay) SetWriteDeadline(time.Time) error { return nil }
