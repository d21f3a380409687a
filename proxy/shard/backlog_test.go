package shard

import (
	"testing"
	"time"

	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/loop"
)

// slowConn is a connection whose peer takes output when the test says so.
type slowConn struct {
	loop.Conn
	left   int // bytes that the peer has not taken
	closed bool
}

func (c *slowConn) Buffered() int { return c.left }
func (c *slowConn) Close()        { c.closed = true }

func (c *slowConn) Write(b []byte) { c.left += len(b) }

func (c *slowConn) WriteParts(parts [][]byte) {
	for _, b := range parts {
		c.left += len(b)
	}
}

// TestBacklog: output that is left counts until the peer has taken it. The connection closes once the peer has taken nothing
// for timeouts.write, whatever was written meanwhile.
func TestBacklog(t *testing.T) {
	const timeout = 10 * time.Second
	s, l := newShard(1, config.Limits{Buffered: mib, Message: mib})
	s.Config.Timeouts.Write = timeout
	var outs [3]Outbound
	var conns [3]slowConn
	for i := range outs {
		outs[i].Init(s)
		outs[i].Conn = &conns[i]
	}
	check := func(when string, held ...int) {
		t.Helper()
		s.checkBacklogs()
		sum := 0
		for i, n := range held {
			if sum += n; outs[i].Counted() != n {
				t.Errorf("%s: %d bytes of connection %d count, want %d", when, outs[i].Counted(), i, n)
			}
		}
		if n := s.Process.Budget.Held() + s.Uncounted; n != int64(sum) {
			t.Errorf("%s: %d bytes are held, want %d", when, n, sum)
		}
	}
	if check("at first", 0, 0, 0); l.armed > 0 {
		t.Error("a timer is armed without output that is left")
	}
	for i := range outs {
		outs[i].Write(make([]byte, 100))
		outs[i].Watch()
	}
	if check("after the first write", 100, 100, 100); l.armed == 0 {
		t.Error("no timer is armed")
	}
	l.now = timeout - 1
	outs[0].Write(make([]byte, 50))
	outs[1].WriteParts([][]byte{make([]byte, 20), make([]byte, 30)})
	outs[2].WriteBoth(make([]byte, 20), make([]byte, 30))
	for i := range outs {
		if outs[i].Watch(); outs[i].Counted() != 150 {
			t.Errorf("%d bytes of connection %d count before a check", outs[i].Counted(), i)
		}
	}
	check("after the second write", 150, 150, 150)
	conns[0].left--
	conns[1].left = 0 // the peer has all
	check("after a read", 149, 0, 150)
	l.now = timeout
	check("at the end of the first timeout", 149, 0, 150)
	if conns[0].closed || conns[1].closed || !conns[2].closed || s.Stats.WriteTimeouts != 1 {
		t.Errorf("closed: %t, %t, %t; %d timeouts", conns[0].closed, conns[1].closed, conns[2].closed, s.Stats.WriteTimeouts)
	}
	outs[2].Stop()
	outs[2].Stop()
	check("after the close", 149, 0, 0)
	l.now = 2*timeout - 2
	if check("before the second timeout", 149, 0, 0); conns[0].closed {
		t.Error("closed although the peer has read in time")
	}
	l.now = 2*timeout - 1
	if check("at the second timeout", 149, 0, 0); !conns[0].closed {
		t.Error("open although the peer has read nothing")
	}
	outs[0].Stop()
	outs[1].WriteParts([][]byte{make([]byte, 7)})
	if outs[1].Watch(); len(s.backlogs.all) != 1 || len(s.backlogs.free) != 2 {
		t.Errorf("%d backlogs, %d to be used again", len(s.backlogs.all), len(s.backlogs.free))
	}
	check("later", 0, 7, 0)
}
