package sim

import "github.com/remora-proxy/remora/proxy/loop"

// roomMutants break Conn.AwaitRoom and Roomy.
var roomMutants = []mutant{
	{"reads past Room", "ReadToRoom", func(_ loop.Loop, m *brokenLoop) {
		m.data = func(r *brokenReceiver, b []byte) {
			if roomy, ok := r.Receiver.(loop.Roomy); ok {
				room := roomy.Room()
				b = room[:copy(room[:cap(room)], b)]
			}
			r.Receiver.OnData(b)
		}
	}},
	{"room at once", "AwaitRoom", func(l loop.Loop, m *brokenLoop) {
		m.room = func(_ *brokenConn, _ int, f *loop.Flush) { l.Defer(f) }
	}},
	{"room with more bytes left", "AwaitRoom", func(_ loop.Loop, m *brokenLoop) {
		m.room = func(c *brokenConn, left int, f *loop.Flush) { c.Conn.AwaitRoom(2*left, f) }
	}},
	{"room again and again", "AwaitRoom", func(_ loop.Loop, m *brokenLoop) {
		m.room = func(c *brokenConn, left int, f *loop.Flush) {
			c.Conn.AwaitRoom(left, &loop.Flush{Do: func() { f.Do(); c.Conn.AwaitRoom(left, f) }})
		}
	}},
	{"room after Close", "AwaitRoom", func(l loop.Loop, m *brokenLoop) {
		m.room = func(c *brokenConn, left int, f *loop.Flush) {
			c.Conn.AwaitRoom(left, f)
			m.closing = func(c *brokenConn) { l.Defer(f); c.Conn.Close() }
		}
	}},
	{"room for all calls", "AwaitRoom", func(_ loop.Loop, m *brokenLoop) {
		earlier := map[*brokenConn]*loop.Flush{}
		m.room = func(c *brokenConn, left int, f *loop.Flush) {
			if e := earlier[c]; e != nil {
				c.Conn.AwaitRoom(left, &loop.Flush{Do: func() { e.Do(); f.Do() }})
				return
			}
			earlier[c] = f
			c.Conn.AwaitRoom(left, f)
		}
	}},
	{"room after Drain", "AwaitRoom", func(l loop.Loop, m *brokenLoop) {
		m.room = func(c *brokenConn, left int, f *loop.Flush) {
			c.Conn.AwaitRoom(left, f)
			m.drain = func(c *brokenConn) { l.Defer(f); c.Conn.Drain() }
		}
	}},
}
