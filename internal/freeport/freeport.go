// Package freeport finds addresses for servers that are told where to listen:
// other processes, and those of a test whose address stands in a configuration.
package freeport

import (
	"errors"
	"math/rand/v2"
	"net"
	"strconv"
)

// Ports lie below the ones that systems give to outgoing connections and to
// listeners on port 0 (RFC 6335 section 6, and Linux from 32768 on), so that none of
// those takes one before its server does.
const (
	first = 20000
	last  = 32000
)

// Loopback returns n addresses of 127.0.0.1, all different, that nobody listens on.
// The search begins anywhere, so that programs that look at the same time find
// different ones.
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
