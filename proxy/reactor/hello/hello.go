// Package hello reads the first bytes of a TLS connection until they hold a whole ClientHello.
// So a driver begins no handshake, which costs a goroutine, for a peer that has sent none. What
// the ClientHello contains is for the handshake to judge.
package hello

import (
	"errors"
	"fmt"
)

// MaxSize limits what a peer may send before the handshake begins, in bytes, with the headers
// of records. A ClientHello takes 250 to 2,000 bytes, and may be split over records of one byte.
const MaxSize = 16 << 10

// ErrNotTLS reports bytes that are not of TLS.
var ErrNotTLS = errors.New("hello: first record does not look like a TLS handshake")

// Error reports TLS that does not begin with a ClientHello.
type Error struct {
	Alert  byte // the alert for it (RFC 8446, section 6)
	reason string
}

// Error implements error.
func (e *Error) Error() string { return "hello: " + e.reason }

// Package tls finds these only later, or not at all.
var (
	errBehind = &Error{alertUnexpectedMessage, "bytes behind the ClientHello in its record"}
	errWithin = &Error{alertUnexpectedMessage, "another record within the ClientHello"} // RFC 8446, section 5.1
)

// Alert returns the record of a fatal alert.
func Alert(description byte) []byte {
	const fatal = 2
	return []byte{recordAlert, 3, 3, 0, 2, fatal, description}
}

const (
	recordHeader = 5
	headerSize   = 4       // of a handshake message
	maxFragment  = 1 << 14 // RFC 8446, section 5.1

	recordAlert     = 21
	recordHandshake = 22
	typeClientHello = 1

	// maxVersion bounds the first byte of the legacy_record_version, whose value means
	// nothing. Text has a greater one.
	maxVersion = 0x10

	// UnrecognizedName is the alert for a server name that nobody here has (RFC 6066, section 3).
	UnrecognizedName = 112

	alertUnexpectedMessage = 10
	alertRecordOverflow    = 22
	alertDecodeError       = 50
)

// Reader reads the bytes of one connection, in any pieces. The zero value is ready for use.
type Reader struct {
	size     int // bytes so far
	at       int // bytes of the record's header so far
	fragment int // length of the record; from the end of its header on, what is left of it
	head     int // bytes of the message's header so far
	message  int // length of the message; from the end of its header on, what is left of it
	whole    bool
	err      error
}

// Feed reads b, the bytes after those of the last call, and reports whether the ClientHello is
// whole: its last record has ended. It returns ErrNotTLS or an *Error as soon as there can be
// none, or more than MaxSize bytes without the handshake. After the first result each further
// call returns the same.
func (r *Reader) Feed(b []byte) (whole bool, err error) {
	if r.whole || r.err != nil {
		return r.whole, r.err
	}
	for i := 0; i < len(b) && !r.whole && r.err == nil; i++ {
		i += r.skip(len(b) - 1 - i)
		r.err = r.next(b[i])
	}
	if r.size += len(b); r.size > MaxSize && r.err == nil {
		r.whole, r.err = false, &Error{alertRecordOverflow, fmt.Sprintf("more than %d bytes before the handshake", MaxSize)}
	}
	return r.whole, r.err
}

// skip passes over at most n bytes of the message's body, but for the last byte of their record. It returns how many.
func (r *Reader) skip(n int) int {
	if r.at < recordHeader || r.head < headerSize {
		return 0
	}
	n = min(n, r.fragment-1, r.message)
	r.fragment -= n
	r.message -= n
	return n
}

func (r *Reader) next(b byte) error {
	if r.at < recordHeader {
		r.at++
		return r.header(b)
	}
	switch {
	case r.head == 0:
		if r.head++; b != typeClientHello {
			return &Error{alertUnexpectedMessage, "the first message is no ClientHello"}
		}
	case r.head < headerSize:
		r.head++
		r.message = r.message<<8 | int(b)
		if r.head == headerSize && r.message > MaxSize {
			return &Error{alertDecodeError, fmt.Sprintf("a ClientHello of %d bytes", r.message)}
		}
	case r.message == 0:
		return errBehind
	default:
		r.message--
	}
	if r.fragment--; r.fragment == 0 {
		r.whole = r.head == headerSize && r.message == 0
		r.at = 0
	}
	return nil
}

// header reads byte number at of a record's header, counted from 1.
func (r *Reader) header(b byte) error {
	switch r.at {
	case 1:
		switch {
		case b == recordHandshake:
		case r.head > 0:
			return errWithin
		default:
			return ErrNotTLS
		}
	case 2:
		if b >= maxVersion {
			return ErrNotTLS
		}
	case 4, 5:
		r.fragment = r.fragment<<8 | int(b)
	}
	if r.at < recordHeader {
		return nil
	}
	switch {
	case r.fragment == 0: // RFC 8446, section 5.1, forbids it
		return &Error{alertUnexpectedMessage, "a handshake record of 0 bytes"}
	case r.fragment > maxFragment:
		return &Error{alertRecordOverflow, fmt.Sprintf("a record of %d bytes", r.fragment)}
	}
	return nil
}
