// Package eyeballs connects to a host that has an address of IPv4 and one of IPv6: the first that
// accepts wins (RFC 8305).
package eyeballs

import (
	"context"
	"errors"
	"net"
	"time"
)

// Delay is the time after which the second address is tried while the first says nothing: the
// Connection Attempt Delay that RFC 8305, section 5 recommends.
const Delay = 250 * time.Millisecond

// Dial connects to first with dial, and to second as well if first has failed, or Delay has passed. It
// returns the first connection, and closes a later one. Without a second address it only calls dial,
// which must end with its context. The error has those of both addresses.
func Dial(ctx context.Context, first, second string, dial func(ctx context.Context, addr string) (net.Conn, error)) (net.Conn, error) {
	if second == "" {
		return dial(ctx, first)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type result struct {
		nc  net.Conn
		err error
	}
	results := make(chan result, 2) // so that a loser does not block
	attempt := func(addr string) {
		nc, err := dial(ctx, addr)
		results <- result{nc, err}
	}
	go attempt(first)
	delay := time.NewTimer(Delay)
	defer delay.Stop()
	var failed error
	for begun, ended := 1, 0; ended < 2; {
		select {
		case r := <-results:
			ended++
			if r.err == nil {
				if begun > ended {
					go func() {
						if late := <-results; late.err == nil {
							_ = late.nc.Close()
						}
					}()
				}
				return r.nc, nil
			}
			failed = errors.Join(failed, r.err)
		case <-delay.C:
		}
		if begun == 1 {
			begun = 2
			go attempt(second)
		}
	}
	return nil, failed
}
