package proxyproto

import (
	"errors"
	"io"
	"net"
	"os"
	"syscall"
)

// firstRead is enough for nearly every header.
const firstRead = 256

// Read reads the header of nc, and no byte behind it. It blocks until the header is whole, or the
// deadline of nc. The error is io.EOF if the peer has closed without a byte, as health checks do.
func Read(nc net.Conn) (Header, error) {
	sc, ok := nc.(syscall.Conn)
	if !ok {
		return Header{}, errors.ErrUnsupported
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return Header{}, err
	}
	b, have := make([]byte, firstRead), 0
	for {
		n, err := peek(raw, b[have:])
		if err == io.EOF && have > 0 {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return Header{}, err
		}
		h, size, bad := Decode(b[:have+n])
		switch bad {
		case nil:
			n = size - have // what follows is not the header's
		case ErrIncomplete:
		default:
			return Header{}, bad
		}
		if _, err := io.ReadFull(nc, b[have:have+n]); err != nil || bad == nil {
			return h, err
		}
		if have += n; have == len(b) {
			b = append(b, make([]byte, MaxBinary-len(b))...)
		}
	}
}

// peek waits for bytes of raw and copies them to b, but leaves them there to be read.
func peek(raw syscall.RawConn, b []byte) (n int, err error) {
	var failed error
	err = raw.Read(func(fd uintptr) (done bool) {
		for {
			n, _, failed = syscall.Recvfrom(int(fd), b, syscall.MSG_PEEK)
			if failed != syscall.EINTR {
				return failed != syscall.EAGAIN
			}
		}
	})
	switch {
	case err != nil:
		return 0, err
	case failed != nil:
		return 0, os.NewSyscallError("recvfrom", failed)
	case n == 0:
		return 0, io.EOF
	}
	return n, nil
}
