package registry

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"sync"
	"syscall"
	"time"
)

// Codes of failures of a source. They are stable. The last known endpoints stay meanwhile.
const (
	CodeUnreachable = "unreachable" // no connection, or no response in time: is the server up, and may this host reach it
	CodeDenied      = "denied"      // the server refuses the account or the certificate of this sidecar, or its own certificate is refused here, or the file may not be read: check the permissions, and the tls block
	CodeMissing     = "missing"     // the file is not there: check the path, and the program that writes the file
	CodeInvalid     = "invalid"     // the file, or a response, can't be understood: the log says why
	CodeFailed      = "failed"      // the server responds with an error of its own: see its log
	CodeUnresolved  = "unresolved"  // a host name has no address in DNS, or no name server responds
)

// CodeOf returns the code of an error of the system, of package tls or of an HTTP client, or other if it is none.
func CodeOf(err error, other string) string {
	var noTLS tls.RecordHeaderError
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return CodeMissing
	case errors.Is(err, fs.ErrPermission), hasRefusedCertificate(err):
		return CodeDenied
	case errors.As(err, &noTLS), errors.Is(err, http.ErrSchemeMismatch): // a response, but not in TLS
		return other
	case isUnreachable(err):
		return CodeUnreachable
	}
	return other
}

// hasRefusedCertificate reports whether a TLS handshake failed because one side refused the other: the client verifies the
// certificate, and the server sends an alert.
func hasRefusedCertificate(err error) bool {
	var unverified *tls.CertificateVerificationError
	var unknown x509.UnknownAuthorityError
	var invalid x509.CertificateInvalidError
	var foreign x509.HostnameError
	var alert tls.AlertError
	var op *net.OpError
	return errors.As(err, &unverified) || errors.As(err, &unknown) || errors.As(err, &invalid) || errors.As(err, &foreign) ||
		errors.As(err, &alert) || errors.As(err, &op) && op.Op == "remote error" // package tls has an alert from the server in it
}

// isUnreachable reports whether there was no response. Not every syscall.Errno counts, although each is a net.Error: those of
// files are none of the network.
func isUnreachable(err error) bool {
	var op *net.OpError
	var lookup *net.DNSError
	var request *url.Error // of http.Client.Do, which had no response
	if errors.As(err, &op) || errors.As(err, &lookup) || errors.As(err, &request) {
		return true
	}
	var late interface{ Timeout() bool }
	if errors.As(err, &late) && late.Timeout() {
		return true
	}
	for _, of := range []error{
		context.DeadlineExceeded, io.EOF, io.ErrUnexpectedEOF, net.ErrClosed, syscall.ECONNREFUSED, syscall.ECONNRESET, syscall.ECONNABORTED,
		syscall.EPIPE, syscall.EHOSTUNREACH, syscall.ENETUNREACH,
	} {
		if errors.Is(err, of) {
			return true
		}
	}
	return false
}

// Condition is how a source of endpoints does now.
type Condition struct {
	Up    bool      // the source responds, and its responses are valid
	Since time.Time // when Up changed last, or when the source was first asked
	Code  string    // of the last failure; "" if the source is up, or has not responded yet
	Err   error     // the last failure; nil if Code is ""

	Services int // that are found here
	Kept     int // endpoints that stay in use although the source does not have them now, or does not respond
	Doubted  int // of Services, those that have endpoints which the source does not have: see Count.Doubt
	Unusable int // records of these services that can't be used, such as malformed ones: the log has an example
}

// Join returns the condition of a source that consists of parts, such as namespaces. It is up if all parts are. Without
// parts it is up since it was made.
func Join(made time.Time, parts ...Condition) Condition {
	all := Condition{Up: true}
	if len(parts) == 0 {
		all.Since = made
	}
	for _, p := range parts {
		switch {
		case p.Up && all.Up && p.Since.After(all.Since):
			all.Since = p.Since // the latest return
		case !p.Up && (all.Up || p.Since.Before(all.Since)):
			all.Up, all.Since = false, p.Since // the earliest loss
		}
		if all.Err == nil {
			all.Code, all.Err = p.Code, p.Err
		}
		all.Services, all.Kept = all.Services+p.Services, all.Kept+p.Kept
		all.Doubted, all.Unusable = all.Doubted+p.Doubted, all.Unusable+p.Unusable
	}
	return all
}

// Contact follows whether a source responds. Its methods may be called from any goroutine.
type Contact struct {
	mu   sync.Mutex
	now  Condition
	told map[string]bool // codes of the failures since the source was up
}

// NewContact returns the Contact of a source that has not responded yet.
func NewContact() *Contact {
	return &Contact{now: Condition{Since: time.Now()}, told: make(map[string]bool)}
}

// Succeed notes a valid response. It returns the condition before.
func (c *Contact) Succeed() (before Condition) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if before = c.now; !before.Up {
		c.now = Condition{Up: true, Since: time.Now()}
		clear(c.told)
	}
	return before
}

// Fail notes a failure. isNews reports whether it is the first one with its code since the source was up. Texts are not
// compared: they have numbers of ports, and a source that fails is asked again for days.
func (c *Contact) Fail(code string, err error) (isNews bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.now.Up {
		c.now = Condition{Since: time.Now()}
	}
	isNews = !c.told[code]
	c.told[code] = true
	c.now.Code, c.now.Err = code, err
	return isNews
}

// Condition returns how the source does, without its services.
func (c *Contact) Condition() Condition {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}
