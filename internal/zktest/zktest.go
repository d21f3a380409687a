// Package zktest is a stand-in for a ZooKeeper server, for tests that need nothing but Go, and that make a server do what a
// real one does seldom. scripts/zookeeper-source.sh runs tests that need nothing but the protocol against a real ZooKeeper. It
// is test support; no command may import it.
//
//	zktest.go  Server and its faults
//	tree.go    nodes, watches and sessions
//	conn.go    connections and requests
package zktest

import (
	"net"
	"os"
	"slices"
	"sync"
	"testing"
	"time"
)

// Server is a server with nodes in memory. Its methods may be called from any goroutine.
type Server struct {
	listener net.Listener
	tasks    sync.WaitGroup

	mu       sync.Mutex
	tree     tree
	conns    map[*conn]struct{}
	isCut    bool
	isFrozen bool
	isClosed bool
	seen     int           // connections whose handshake is done
	longest  time.Duration // of sessions; 0 means as the client asks
	failing  map[string]int32
	refusal  int32 // the code of all responses; 0 means none
}

// Real is the variable of the environment with the address of a real ZooKeeper.
const Real = "ZOOKEEPER"

// Addr returns the address of a server for a test that needs nothing of it but its protocol: of a real one if the environment
// names it, else of a stand-in.
func Addr(t testing.TB) string {
	t.Helper()
	if real := os.Getenv(Real); real != "" {
		return real
	}
	return Start(t).Addr()
}

// Start starts a server that the end of the test stops. A run with a real ZooKeeper skips the test: a real ZooKeeper changes
// nothing in it.
func Start(t testing.TB) *Server {
	t.Helper()
	if os.Getenv(Real) != "" {
		t.Skip("the test has a stand-in for ZooKeeper")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{listener: l, conns: make(map[*conn]struct{}), failing: make(map[string]int32)}
	s.tree.wipe()
	s.tasks.Go(s.accept)
	done := make(chan struct{})
	s.tasks.Go(func() { s.expire(done) })
	t.Cleanup(func() {
		close(done)
		l.Close()
		s.mu.Lock()
		s.isClosed = true
		s.dropAll()
		s.mu.Unlock()
		s.tasks.Wait()
	})
	return s
}

// Addr returns the address for clients.
func (s *Server) Addr() string { return s.listener.Addr().String() }

// Cut closes all connections and refuses others, or accepts them again.
func (s *Server) Cut(cut bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.isCut = cut
	if cut {
		s.dropAll()
	}
}

// Freeze makes the server accept connections and answer nothing, or end the sessions that it has not heard from meanwhile.
func (s *Server) Freeze(frozen bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.isFrozen = frozen
	if !frozen {
		s.dropAll()
	}
}

// Wipe makes the server lose its nodes, its sessions and its count of changes, as a new disk does.
func (s *Server) Wipe() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tree.wipe()
	s.dropAll()
}

// Expire ends all sessions.
func (s *Server) Expire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id := range s.tree.sessions {
		s.tree.endSession(id)
	}
	s.dropAll()
}

// Drop closes all connections.
func (s *Server) Drop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dropAll()
}

// Limit makes the server give sessions no more time than this.
func (s *Server) Limit(longest time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.longest = longest
}

// Create makes a persistent node, and those above it. A node that exists gets the data.
func (s *Server) Create(path, data string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := 1; i < len(path); i++ {
		if path[i] == '/' && s.tree.nodes[path[:i]] == nil {
			s.tree.create(path[:i], nil, 0, "")
		}
	}
	if s.tree.nodes[path] != nil {
		s.tree.set(path, []byte(data))
		return
	}
	s.tree.create(path, []byte(data), 0, "")
}

// Delete deletes a node.
func (s *Server) Delete(path string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tree.delete(path)
}

// Protect makes a node readable only for a user, "name:password". "" means everyone.
func (s *Server) Protect(path, user string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tree.nodes[path].user = user
}

// Fail makes the server respond with this code to each request for a path, whether the node exists or not. 0 ends the failures.
func (s *Server) Fail(path string, code int32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failing[path] = code
}

// Refuse makes the server respond with this code to each request, as one that does not accept an account. 0 ends the refusals.
func (s *Server) Refuse(code int32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refusal = code
}

// Paths returns the paths of all nodes, sorted.
func (s *Server) Paths() (all []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for p := range s.tree.nodes {
		all = append(all, p)
	}
	slices.Sort(all)
	return all
}

// Owner returns the id of the session that owns a node, 0 for a persistent one, or -1 if there is no such node.
func (s *Server) Owner(path string) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := s.tree.nodes[path]; n != nil {
		return n.owner
	}
	return -1
}

// Changes returns how many changes of nodes there have been.
func (s *Server) Changes() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tree.zxid
}

// Connections returns how many connections have had a handshake since the start.
func (s *Server) Connections() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.seen
}

// Open returns how many connections are open.
func (s *Server) Open() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.conns)
}

func (s *Server) dropAll() {
	for c := range s.conns {
		c.close()
	}
}

// expire ends sessions whose clients are silent.
func (s *Server) expire(done <-chan struct{}) {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-done:
			return
		case now := <-tick.C:
			s.mu.Lock()
			for id, sess := range s.tree.sessions {
				if !s.isFrozen && now.Sub(sess.heard) > sess.timeout {
					s.tree.endSession(id)
				}
			}
			s.mu.Unlock()
		}
	}
}
