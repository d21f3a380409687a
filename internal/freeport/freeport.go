// Package freeport finds addresses for servers that can't listen on port 0: other
// processes, and servers whose address must be in a configuration beforehand. The
// lab and tests use it.
package freeport

import (
	"errors"
	"math/rand/v2"
	"net"
	"strconv"
)

// The ports lie below those that systems assign to outgoing connections and to
// listeners on port 0 (RFC 6335 section 6; Linux begins at 32768). So no such socket
// takes a port before its server listens.
const (
	first = 20000
	last  = 32000
)

// Loopback returns n different addresses of 127.0.0.1 without a listener. The search
// begins at a random port, so that concurrent programs find different ones.
func Loopback(n int) ([]string, error) {
	var found []string
	var lastErr error
	start := rand.IntN(last - first)
	for i := 0; i < last-first && len(found) < n; i++ {
		addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(first+(start+i)%(last-first)))
		ln, err := net.Listen("tcp", addr)
		if err != nil {
			lastErr = err
			continue
		}
		ln.Close()
		found = append(found, addr)
	}
	if len(found) < n {
		return nil, errors.Join(errors.New("too few free ports"), lastErr)
	}
	return found, nil
}
