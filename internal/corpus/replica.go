package corpus

import (
	"fmt"
	"net"
	"sync"
)

// Replica is an application on a raw socket. It records each byte that it receives.
type Replica struct {
	// Reply returns the response to the n-th request since Take, and whether the
	// connection closes after it.
	Reply func(m *Message, n int) (answer []byte, closes bool)

	ln     net.Listener
	all    sync.WaitGroup
	mu     sync.Mutex
	record *Record
	conns  map[net.Conn]bool
}

// ReplicaField is a header of all responses of a Replica.
const ReplicaField = "X-Replica"

// NumberedReply responds to every request with its number.
func NumberedReply(m *Message, n int) (answer []byte, closes bool) {
	body := Numbered(n)
	answer = fmt.Appendf(nil, "HTTP/1.1 200 OK\r\n%s: %d\r\nContent-Length: %d\r\n\r\n", ReplicaField, n, len(body))
	if m.Method != "HEAD" {
		answer = append(answer, body...)
	}
	return answer, false
}

// StartReplica listens on a free port of 127.0.0.1, and responds with reply.
func StartReplica(reply func(m *Message, n int) (answer []byte, closes bool)) (*Replica, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	r := &Replica{Reply: reply, ln: ln, record: &Record{}, conns: map[net.Conn]bool{}}
	r.all.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			r.mu.Lock()
			r.conns[c] = true
			r.mu.Unlock()
			r.all.Go(func() { r.serve(c) })
		}
	})
	return r, nil
}

// Addr returns the address on which r listens.
func (r *Replica) Addr() string { return r.ln.Addr().String() }

// Take begins another record, and returns the one before. Incomplete requests are still
// added to the one before.
func (r *Replica) Take() Record {
	r.mu.Lock()
	defer r.mu.Unlock()
	taken := r.record
	r.record = &Record{}
	return *taken
}

// Record returns what was recorded since the last Take.
func (r *Replica) Record() Record {
	r.mu.Lock()
	defer r.mu.Unlock()
	return *r.record
}

// Close closes the listener and all connections, and waits for their goroutines.
func (r *Replica) Close() {
	r.ln.Close()
	r.mu.Lock()
	for c := range r.conns {
		c.Close()
	}
	r.mu.Unlock()
	r.all.Wait()
}

func (r *Replica) serve(c net.Conn) {
	var on *Recorder
	defer func() {
		c.Close()
		r.mu.Lock()
		delete(r.conns, c)
		if on != nil && len(on.held) > 0 {
			on.to.Cut++
		}
		r.mu.Unlock()
	}()
	b := make([]byte, 64<<10)
	for {
		n, err := c.Read(b)
		if err != nil {
			return
		}
		r.mu.Lock()
		if on == nil || on.to != r.record && len(on.held) == 0 {
			on = NewRecorder(r.record)
		}
		complete := on.Feed(b[:n])
		first, wrong := len(on.to.Requests)-len(complete)+1, on.to.Wrong != nil
		r.mu.Unlock()
		for i := range complete {
			answer, closes := r.Reply(&complete[i], first+i)
			if _, err := c.Write(answer); err != nil || closes {
				return
			}
		}
		if wrong {
			return
		}
	}
}
