// Package eyeballs connects to a host that has several addresses, of IPv4 and of IPv6: the first that
// accepts wins (RFC 8305).
package eyeballs

import (
	"context"
	"errors"
	"io"
	"net/netip"
	"strings"
	"time"
)

// Delay is the time after which the next address is tried while the earlier ones say nothing: the
// Connection Attempt Delay that RFC 8305, section 5 recommends.
const Delay = 250 * time.Millisecond

// Dial connects to addrs in turn with dial: to the next one as soon as one has failed, or Delay has passed. It
// returns the first connection, and closes later ones. With one address it only calls dial, which must end with
// its context. The error has those of all addresses.
func Dial[C io.Closer](ctx context.Context, addrs []string, dial func(ctx context.Context, addr string) (C, error)) (C, error) {
	if len(addrs) == 1 {
		return dial(ctx, addrs[0])
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type result struct {
		c   C
		err error
	}
	results := make(chan result, len(addrs)) // so that a loser does not block
	begun, ended := 0, 0
	begin := func() {
		addr := addrs[begun]
		begun++
		go func() {
			c, err := dial(ctx, addr)
			results <- result{c, err}
		}()
	}
	begin()
	delay := time.NewTimer(Delay)
	defer delay.Stop()
	var failed error
	for ended < len(addrs) {
		select {
		case r := <-results:
			ended++
			if r.err == nil {
				go func() {
					for range begun - ended {
						if late := <-results; late.err == nil {
							_ = late.c.Close()
						}
					}
				}()
				return r.c, nil
			}
			failed = errors.Join(failed, r.err)
			delay.Reset(0)
		case <-delay.C:
			if begun < len(addrs) {
				begin()
				delay.Reset(Delay)
			}
		}
	}
	var none C
	return none, failed
}

// Both returns the addresses of a host. second may be "": then the host has one address.
func Both(first, second string) []string {
	if second == "" {
		return []string{first}
	}
	return []string{first, second}
}

// Order returns at most n of the addresses of a host, in the order in which they are tried: that of addrs, but with
// the families in turn (RFC 8305, section 4), so that neither fills the n places.
func Order(addrs []netip.AddrPort, n int) []netip.AddrPort {
	var families [2][]netip.AddrPort // the first is that of the first address
	for _, a := range addrs {
		family := 0
		if a.Addr().Is4() != addrs[0].Addr().Is4() {
			family = 1
		}
		families[family] = append(families[family], a)
	}
	var order []netip.AddrPort
	for i := 0; len(order) < min(n, len(addrs)); i++ {
		if f := families[i%2]; len(f) > i/2 {
			order = append(order, f[i/2])
		}
	}
	return order
}

// Loopback returns the addresses of localhost, whatever /etc/hosts has (RFC 6761, section 6.3). It returns nil for
// other names.
func Loopback(name string) []netip.Addr {
	if !strings.EqualFold(strings.TrimSuffix(name, "."), "localhost") {
		return nil
	}
	return []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()}
}
