package bench

import (
	"io"
	"net"
	"sync"
	"time"
)

// cutter relays connections to a proxy, and ends them on demand, so that the proxy before it dials anew. A nil one
// does nothing.
type cutter struct {
	ln   *net.TCPListener
	to   string
	work sync.WaitGroup

	mu     sync.Mutex
	relays map[*relayed]struct{}
}

// relayed is a connection of a cutter.
type relayed struct {
	near, far *net.TCPConn
	ended     chan struct{} // closed when both sides have ended
}

func newCutter(to string) (*cutter, error) {
	ln, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return nil, err
	}
	c := &cutter{ln: ln, to: to, relays: map[*relayed]struct{}{}}
	c.work.Go(c.accept)
	return c, nil
}

func (c *cutter) addr() string { return c.ln.Addr().String() }

func (c *cutter) accept() {
	for {
		near, err := c.ln.AcceptTCP()
		if err != nil {
			return
		}
		c.work.Go(func() { c.relay(near) })
	}
}

func (c *cutter) relay(near *net.TCPConn) {
	defer near.Close()
	far, err := net.DialTimeout("tcp", c.to, requestTimeout)
	if err != nil {
		return
	}
	defer far.Close()
	r := &relayed{near, far.(*net.TCPConn), make(chan struct{})}
	defer close(r.ended)
	c.mu.Lock()
	c.relays[r] = struct{}{}
	c.mu.Unlock()
	var back sync.WaitGroup
	back.Go(func() { r.pass(r.near, r.far) })
	r.pass(r.far, r.near)
	back.Wait()
	c.mu.Lock()
	delete(c.relays, r)
	c.mu.Unlock()
}

// pass copies from one side to the other until its end.
func (r *relayed) pass(to, from *net.TCPConn) {
	_, _ = io.Copy(to, from)
	_ = to.CloseWrite()
}

// cut ends the connections, and returns once both proxies have ended them, too.
func (c *cutter) cut() {
	c.mu.Lock()
	var all []*relayed
	for r := range c.relays {
		all = append(all, r)
	}
	c.mu.Unlock()
	for _, r := range all {
		for _, side := range []*net.TCPConn{r.near, r.far} {
			_ = side.CloseWrite()
			_ = side.SetReadDeadline(time.Now().Add(requestTimeout))
		}
		<-r.ended
	}
}

func (c *cutter) close() {
	if c != nil {
		c.ln.Close()
		c.mu.Lock()
		for r := range c.relays {
			r.near.Close()
			r.far.Close()
		}
		c.mu.Unlock()
		c.work.Wait()
	}
}
