// Package session is a client of ZooKeeper: a session that goes on over connections, its requests and its watches. It knows
// nothing of services.
//
// It speaks ZooKeeper's protocol itself. github.com/go-zookeeper/zk 1.0.4 could not be used: a message that is too short, or
// has a wrong count, panics in its goroutine and ends the process; the length of the first message is not checked, so any
// other server at the address makes it take gigabytes; a session never finds back to a ZooKeeper that has lost its data; and
// watches that it fails to set again are lost without a word.
//
//	session.go  Session: one connection after the other
//	conn.go     one connection: messages, pings and the handshake
//	request.go  requests; code.go errors of the server
//	jute.go     values on the wire
package session

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/remora-proxy/remora/internal/backoff"
)

// Handler is told what happens to a session. Its methods are called one at a time. They must not block, and not call the Session.
type Handler interface {
	// Connected is called once a server has answered a first request. A server that refuses the account, or has ended the session,
	// has only shaken hands. No watch is set. isNew reports whether the session is another one than at the last call, so that
	// ephemeral nodes of the former one have gone, or will soon.
	Connected(id int64, isNew bool)

	// Lost is called when the connection has ended, and after each failed try to open one.
	Lost(err error)

	// Changed is called when a watch of a node, or of its children, has fired. The watch is gone then.
	Changed(path string)
}

// Options configures a Session.
type Options struct {
	Servers []string      // "host:port", at least one
	Timeout time.Duration // after which the server ends a session that it does not hear from; the server may choose another

	Username, Password string // for the scheme digest; "" means none

	Dial    func(ctx context.Context, addr string) (net.Conn, error) // nil means plain TCP
	Handler Handler
}

// Session is a session with ZooKeeper. Its methods may be called from any goroutine.
type Session struct {
	opt    Options
	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	done   chan struct{}

	mu   sync.Mutex
	conn *conn // the last that was alive, which may have ended; nil means none

	// Of the goroutine that connects.
	servers  []string
	next     int
	id       int64
	told     int64 // the id of the session that the Handler knows; 0 means none
	password []byte
	timeout  time.Duration // as the server has chosen
	zxid     int64         // last change of ZooKeeper's data that the session has seen
	heard    time.Time     // when a server last sent something
}

// New returns a session that Start opens.
func New(opt Options) *Session {
	if opt.Dial == nil {
		opt.Dial = func(ctx context.Context, addr string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", addr)
		}
	}
	s := &Session{opt: opt, done: make(chan struct{}), servers: slices.Clone(opt.Servers)}
	rand.Shuffle(len(s.servers), func(i, j int) { s.servers[i], s.servers[j] = s.servers[j], s.servers[i] })
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.forget()
	return s
}

// Start opens the session, and keeps it open until Close. It does not wait for a server. The Handler is called from now on.
func (s *Session) Start() { go s.run() }

// Close ends the session, and with it its ephemeral nodes: at once if a server answers within closeTimeout, else after the
// timeout of the session. It must follow Start.
func (s *Session) Close() {
	s.mu.Lock()
	c := s.conn
	s.mu.Unlock()
	if c != nil {
		ctx, cancel := context.WithTimeout(s.ctx, closeTimeout)
		defer cancel()
		_, _ = c.do(ctx, opClose, nil)
	}
	s.cancel()
	<-s.done
}

const (
	minTimeout   = 100 * time.Millisecond // of a session; a server may say less
	dialTimeout  = 3 * time.Second
	closeTimeout = time.Second

	// Pauses between tries, after all servers have failed.
	minPause = 100 * time.Millisecond
	maxPause = 5 * time.Second
)

// do sends a request over the present connection.
func (s *Session) do(ctx context.Context, op int32, encode func(*encoder)) (decoder, error) {
	s.mu.Lock()
	c := s.conn
	s.mu.Unlock()
	if c == nil {
		return decoder{}, ErrLost
	}
	return c.do(ctx, op, encode)
}

// forget makes the next connection open another session.
func (s *Session) forget() {
	s.id, s.told, s.password, s.zxid, s.timeout = 0, 0, make([]byte, passwordSize), 0, s.opt.Timeout
}

const passwordSize = 16

func (s *Session) run() {
	defer close(s.done)
	pause := backoff.Backoff{Min: minPause, Max: maxPause}
	for failed := 0; ; {
		c, err := s.connect()
		if err == nil {
			began := time.Now()
			err = s.serve(c)
			if time.Since(began) > maxPause { // a server may answer, and close soon after
				failed = 0
				pause.Reset()
			}
		}
		if s.ctx.Err() != nil {
			return
		}
		s.opt.Handler.Lost(err)
		// A server that has lost its data refuses a session that has seen more than it has. It answers another session.
		if time.Since(s.heard) > s.timeout {
			s.forget()
		}
		if failed++; failed%len(s.servers) != 0 {
			continue
		}
		if !pause.Wait(s.ctx) {
			return
		}
	}
}

// connect opens a connection to the next server, and asks it for a sign of life, which serve receives.
func (s *Session) connect() (c *conn, err error) {
	addr := s.servers[s.next%len(s.servers)]
	s.next++
	nc, err := s.dial(addr)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(s.ctx, func() { _ = nc.Close() }) // ends the handshake
	defer stop()
	g, err := greet(nc, s.zxid, s.opt.Timeout, s.id, s.password)
	if err == nil && g.timeout == 0 {
		s.forget()
		err = Expired
	}
	c = &conn{net: nc, silence: max(g.timeout, minTimeout) * 2 / 3}
	if err == nil && s.opt.Username != "" {
		err = c.sendOwn(xidAuth, opAuth, func(e *encoder) {
			e.int32(0)
			e.text("digest")
			e.text(s.opt.Username + ":" + s.opt.Password)
		})
	}
	if err == nil {
		err = c.sendOwn(xidPing, opPing, nil)
	}
	if err != nil {
		_ = nc.Close()
		return nil, err
	}
	s.id, s.password, s.timeout, s.heard = g.id, g.password, g.timeout, time.Now()
	return c, nil
}

func (s *Session) dial(addr string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(s.ctx, dialTimeout)
	defer cancel()
	return s.opt.Dial(ctx, addr)
}

// serve receives on a connection until it ends, and returns why.
func (s *Session) serve(c *conn) error {
	ctx, cancel := context.WithCancel(s.ctx)
	stop := context.AfterFunc(ctx, func() { _ = c.net.Close() })
	defer stop()
	var pings sync.WaitGroup
	pings.Go(func() { c.ping(ctx) })
	defer pings.Wait()
	defer cancel()
	err := c.read(incoming{
		heard: func(zxid int64) {
			s.zxid, s.heard = max(s.zxid, zxid), time.Now()
		},
		alive: sync.OnceFunc(func() {
			s.mu.Lock()
			s.conn = c
			s.mu.Unlock()
			isNew := s.id != s.told
			s.told = s.id
			s.opt.Handler.Connected(s.id, isNew)
		}),
		changed: s.opt.Handler.Changed,
	})
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		return ErrSilent
	}
	return cmp.Or(err, ErrLost)
}

// ErrSilent means that the server has sent nothing for two thirds of the timeout, although it was asked.
var ErrSilent = errors.New("zookeeper: the server is silent")
