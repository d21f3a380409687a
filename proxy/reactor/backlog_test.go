package reactor

import (
	"net"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/remora-proxy/remora/proxy/loop"
)

// lateListener accepts nothing until it ends, as if its goroutine got no processor.
type lateListener struct {
	net.Listener
	kernelListener
	end   func()
	ended chan struct{}
}

func (l *lateListener) SetDeadline(t time.Time) error {
	err := l.kernelListener.SetDeadline(t)
	l.end()
	return err
}

func (l *lateListener) Close() error {
	err := l.Listener.Close()
	l.end()
	return err
}

func (l *lateListener) Accept() (net.Conn, error) {
	<-l.ended
	return l.Listener.Accept()
}

// TestCloseAcceptsBacklog: connections that nobody has accepted when a listener closes are served,
// and not reset.
func TestCloseAcceptsBacklog(t *testing.T) {
	for _, addr := range []string{"127.0.0.1:0", "unix:" + filepath.Join(t.TempDir(), "s")} {
		e := start(t, Options{Loops: 2})
		ln, err := Bind(addr)
		if err != nil {
			t.Fatal(err)
		}
		late := &lateListener{Listener: ln, kernelListener: ln.(kernelListener), ended: make(chan struct{})}
		late.end = sync.OnceFunc(func() { close(late.ended) })
		l, err := e.Serve(late, ListenOptions{}, func(loop.Loop, string) loop.Stream { return echo() })
		if err != nil {
			t.Fatal(err)
		}
		var clients []net.Conn
		for range 10 {
			c, err := net.Dial(ln.Addr().Network(), ln.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			_ = c.SetDeadline(time.Now().Add(waitLimit))
			clients = append(clients, c)
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		for _, c := range clients {
			if got := ask(t, c, "hello"); got != "hello" {
				t.Errorf("the answer is %q", got)
			}
		}
		if c, err := net.Dial(ln.Addr().Network(), ln.Addr().String()); err == nil {
			c.Close()
			t.Error("a connection is accepted after Close")
		}
	}
}
