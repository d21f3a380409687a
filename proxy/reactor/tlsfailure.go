package reactor

import (
	"context"
	"crypto/tls"
	"errors"
	"maps"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/remora-proxy/remora/proxy/certs"
)

// Codes of failed TLS, stable, beside those of package certs.
const (
	CodePlaintext = "tls_plaintext" // the peer does not speak TLS
	CodeTimeout   = "tls_timeout"   // the handshake took too long
	CodeBusy      = "tls_busy"      // too many handshakes were under way
	CodeRefused   = "tls_refused"   // the peer refused us, by an alert
	CodeFailed    = "tls_failed"    // anything else, such as a connection that broke
)

// errSilent is when the peer closed without a word. On a listener that is how
// health checks connect, so it is no failure there.
var errSilent = errors.New("reactor: the peer closed before the handshake")

// errTruncated is the end of a connection without a close_notify: what came may
// not be all there is (RFC 8446, section 6.1).
var errTruncated = errors.New("reactor: the peer broke off without a close_notify")

// errBusy is when a handshake was not begun.
var errBusy = errors.New("reactor: too many TLS handshakes are under way")

// tlsCode is the stable name of a failure.
func tlsCode(err error) string {
	var refused *certs.VerifyError
	var header tls.RecordHeaderError
	var op *net.OpError
	switch {
	case errors.As(err, &refused):
		return refused.Code
	case errors.As(err, &header):
		return CodePlaintext
	case errors.Is(err, errBusy):
		return CodeBusy
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded):
		return CodeTimeout
	case errors.As(err, &op) && op.Op == "remote error": // package tls's word for an alert
		return CodeRefused
	case strings.Contains(err.Error(), "client didn't provide a certificate"): // it has no type
		return certs.CodeNoCertificate
	}
	return CodeFailed
}

// tlsFailures counts failures by code, and keeps those who cause many of them
// from filling the log.
type tlsFailures struct {
	mu     sync.Mutex
	counts map[string]int64
	logged map[string]time.Time // the last line of each code
	silent map[string]int64     // failures since, without a line
}

// logPause is how long a code is silent after a line.
const logPause = time.Second

// tlsFailed counts a failure of TLS with a peer, and logs it unless the same
// code was logged a moment ago.
func (e *Engine) tlsFailed(remote string, err error) {
	code, now := tlsCode(err), time.Now()
	f := &e.tlsFailures
	f.mu.Lock()
	if f.counts == nil {
		f.counts, f.logged, f.silent = map[string]int64{}, map[string]time.Time{}, map[string]int64{}
	}
	f.counts[code]++
	quiet := now.Sub(f.logged[code]) < logPause
	omitted := f.silent[code]
	if quiet {
		f.silent[code]++
	} else {
		f.logged[code], f.silent[code] = now, 0
	}
	f.mu.Unlock()
	if !quiet {
		e.log.Warn("TLS failed", "code", code, "remote", remote, "error", err, "omitted", omitted)
	}
}

// snapshot returns the counts.
func (f *tlsFailures) snapshot() map[string]int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.counts)
}
