package reactor

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"maps"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/remora-proxy/remora/proxy/certs"
	"github.com/remora-proxy/remora/proxy/reactor/hello"
)

// Codes of TLS failures, besides those of package certs. They are stable.
const (
	CodePlaintext = "tls_plaintext" // the peer does not speak TLS
	CodeTimeout   = "tls_timeout"   // the handshake took too long
	CodeSilent    = "tls_silent"    // no whole ClientHello, and newer connections needed the place
	CodeBusy      = "tls_busy"      // too many handshakes were under way
	CodeRefused   = "tls_refused"   // the peer refused this side, by an alert
	CodeProtocol  = "tls_protocol"  // the peer speaks none of our application protocols (ALPN)
	CodeVersion   = "tls_version"   // the peer speaks none of our versions of TLS
	CodeFailed    = "tls_failed"    // any other failure, such as a broken connection
)

// errClosedSilently reports that the peer of a dialled connection closed without sending a byte.
var errClosedSilently = errors.New("reactor: the peer closed before the handshake")

// errTruncated reports the end of a connection without close_notify: the input may be
// truncated (RFC 8446, section 6.1).
var errTruncated = errors.New("reactor: the peer broke off without a close_notify")

var (
	errSilent   = errors.New("reactor: no whole ClientHello, and newer connections needed the place")
	errHelloCut = errors.New("reactor: the peer closed within its ClientHello")
)

var errBusy = errors.New("reactor: too many TLS handshakes are under way")

func tlsCode(err error) string {
	var refused *certs.VerifyError
	var header tls.RecordHeaderError
	var op *net.OpError
	switch {
	case errors.As(err, &refused):
		return refused.Code
	case errors.As(err, &header), errors.Is(err, hello.ErrNotTLS):
		return CodePlaintext
	case errors.Is(err, errALPN):
		return CodeProtocol
	case errors.Is(err, errSilent):
		return CodeSilent
	case errors.Is(err, errBusy):
		return CodeBusy
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded):
		return CodeTimeout
	case errors.As(err, &op) && op.Op == "remote error": // how package tls marks an alert
		return CodeRefused
	}
	for text, code := range untyped {
		if strings.Contains(err.Error(), text) {
			return code
		}
	}
	return CodeFailed
}

// untyped has the codes of errors of package tls that have no type, by a part of their text.
var untyped = map[string]string{
	"client didn't provide a certificate":          certs.CodeNoCertificate,
	"unsupported application protocols":            CodeProtocol,
	"client offered only unsupported versions":     CodeVersion,
	"server selected unsupported protocol version": CodeVersion,
}

// tlsOutcomes counts the handshakes that succeeded, and the TLS failures, which it logs. Any goroutine may call its
// methods.
type tlsOutcomes struct {
	log *slog.Logger

	succeeded, resumed atomic.Int64

	mu     sync.Mutex
	counts map[string]int64     // failures by code
	logged map[string]time.Time // time of the last line of each code
	silent map[string]int64     // failures since then without a line
}

// logPause is how long no other line is logged for a code.
const logPause = time.Second

// succeed counts a handshake.
func (o *tlsOutcomes) succeed(over *tls.Conn) {
	o.succeeded.Add(1)
	if over.ConnectionState().DidResume {
		o.resumed.Add(1)
	}
}

// fail counts a TLS failure with a peer, and logs it at most once per code and logPause.
func (o *tlsOutcomes) fail(remote string, err error) {
	code, now := tlsCode(err), time.Now()
	o.mu.Lock()
	if o.counts == nil {
		o.counts, o.logged, o.silent = map[string]int64{}, map[string]time.Time{}, map[string]int64{}
	}
	o.counts[code]++
	quiet := now.Sub(o.logged[code]) < logPause
	omitted := o.silent[code]
	if quiet {
		o.silent[code]++
	} else {
		o.logged[code], o.silent[code] = now, 0
	}
	o.mu.Unlock()
	if !quiet {
		o.log.Warn("TLS failed", "code", code, "remote", remote, "error", err, "omitted", omitted)
	}
}

// failDial counts a failure of the handshake of a dialled connection, and returns why the dial ends. stop has ended
// once the Reactor stops.
func (o *tlsOutcomes) failDial(stop context.Context, remote string, err error) error {
	if stop.Err() != nil {
		return ErrStopped
	}
	if !errors.Is(err, context.Canceled) { // cancelled here, so no failure of the peer
		o.fail(remote, err)
	}
	return err
}

// snapshot returns the counts. The map is the caller's.
func (o *tlsOutcomes) snapshot() (succeeded, resumed int64, failures map[string]int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.succeeded.Load(), o.resumed.Load(), maps.Clone(o.counts)
}
