package bench

import (
	"net"
	"testing"
	"time"

	"github.com/remora-proxy/remora/internal/must"
)

// TestStorm checks that a storm goes on after handshakes that fail, counts them, and ends with what runs beside it.
func TestStorm(t *testing.T) {
	dir := t.TempDir()
	if err := writeCertificates(dir, false); err != nil {
		t.Fatal(err)
	}
	ln := must.Listen(t)
	_ = ln.(*net.TCPListener).SetDeadline(time.Now().Add(time.Minute))
	s := &Stack{dir: dir, Addr: ln.Addr().String(), Tools: Tools{Lab: self(t)}}
	failed, err := s.inStorm(AtListener, 1000, func() {
		for range 3 {
			if nc, err := ln.Accept(); err == nil {
				nc.Close()
			}
		}
		ln.Close()
	})
	if failed < 3 || err != nil {
		t.Errorf("%d have failed, %v", failed, err)
	}
	noChildren(t)
	s.dir = t.TempDir()
	if _, err := s.inStorm(AtListener, 1000, func() {}); err == nil {
		t.Error("a storm without certificates is no error")
	}
}
