package http

import (
	"errors"
	"time"

	"github.com/remora-proxy/remora/protocol/http1"
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/race"
)

const (
	streamHeld = 2 // multiple of limits.message that a response may hold until it leaves the loop

	detachPause = 100 * time.Millisecond // until the next try of a response for which the system had no descriptor
)

// leaving lets a response that must be a stream leave the loop, with its connection.
//
// Calls in: check, when a part of the body was received. begin and stop, around a response.
//
// Calls out: the attempt gets the response. Or the connection drops it, or fails.
type leaving struct {
	*conn
	pause loop.Timer // armed while a body is incomplete that may be a stream, and before another try to leave
	held  bool       // the head is held until the first byte of the body
	room  loop.Flush // deferred when all of the request is sent
}

func (l *leaving) init(c *conn) {
	l.conn = c
	l.pause.Fire, l.room.Do = l.becomeStream, l.leave
}

// begin prepares for a response.
func (l *leaving) begin() { l.held = false }

// stop ends the wait for the rest of a response.
func (l *leaving) stop() { l.shard.Loop.Stop(&l.pause) }

// holds reports whether the response is a stream whose head is held.
func (l *leaving) holds() bool { return l.held }

// check makes a response a stream if it must be one. It is called when a part of the body
// was received, or when the body is too long for a message.
func (l *leaving) check() {
	switch {
	case !l.shard.Process.Streams:
	case l.held, l.tooLong(), l.head.Framing != http1.FixedLength && l.response.IsFeed():
		l.becomeStream()
	case l.head.Framing != http1.FixedLength && !l.pause.Armed():
		l.shard.Loop.After(race.StreamAfter, &l.pause)
	}
}

// becomeStream passes a response on that must be a stream, or holds its head as long as the race wants.
func (l *leaving) becomeStream() {
	if l.body.Length() == 0 {
		if wait := l.current.HoldsHead(); wait > 0 {
			l.held = true
			l.shard.Loop.After(wait, &l.pause)
			return
		}
	}
	l.leave()
}

// leave takes the connection off the loop, and passes the response to its attempt as a
// stream. The response of a lingering attempt is dropped.
func (l *leaving) leave() {
	if l.response == nil { // it became complete before all of its request was sent
		return
	}
	if l.current.Lingering() {
		l.drop()
		return
	}
	sock, err := l.transport.Detach()
	switch {
	case err == nil:
		l.onDetached(sock)
	case err == loop.ErrDetachClosed: // OnClose follows
	case errors.Is(err, errors.ErrUnsupported):
		if l.tooLong() {
			l.fail(fault.ResponseTooLarge)
		}
	case int64(l.body.Length()) > streamHeld*l.shard.MessageLimits.Message:
		l.fail(fault.ResponseTooLarge) // and not Overloaded, with which any request may be sent again
	case err == loop.ErrDetachBuffered: // its request is not completely sent
		l.transport.AwaitRoom(0, &l.room)
	default: // the system has no descriptor left
		l.shard.Loop.After(detachPause, &l.pause)
	}
}

// onDetached passes the response to its attempt, after the connection has left the loop.
func (l *leaving) onDetached(sock loop.Socket) {
	res, a := l.response, l.release()
	l.response = nil
	res.Receive(l.head.Minor)
	if l.head.Framing == http1.FixedLength {
		res.DeclaredLength = l.head.Length
	}
	res.Source = &race.StreamSource{
		Socket: sock, Addr: l.pool.endpoint.LB.Addr, Service: l.pool.service.Config.Name,
		Body: l.body, Buffer: res.BodyBuffer, Stream: a.NewStream(),
	}
	res.BodyBuffer = nil
	res.Charge()
	l.close()
	a.Respond(res)
}
