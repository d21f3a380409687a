package loop

// The interfaces of this file are optional: a type assertion asks for them. All but Peeker belong to receivers, and
// drivers ask. A receiver without one has nothing to say there, so the interface is no part of Receiver.
//
//	interface   who has it                                  without it
//	HalfCloser  sessions of HTTP/1.1 and HTTP/2             the connection closes with its input
//	Roomy       HTTP/1.1 and links, both ends               input is read to memory of the driver, and copied
//	Destined    connections to endpoints                    dialled without TLS
//	Named       those of HTTP/1.1 and HTTP/2                the endpoint proves the name that the TLS settings say
//	Negotiated  those of HTTP/2                             the endpoint may select any protocol
//	Verified    sessions and connections to endpoints,      the connection closes at once
//	            both but for Dubbo
//	Movable     sessions of HTTP/1.1                        the connection stays on its loop
//	Peeker      loops of proxy/reactor                      who wants to read waits for a turn

// HalfCloser is a Receiver that may send more to a peer that sends nothing more.
type HalfCloser interface {
	Receiver
	// OnEnd is called, at most once, between OnOpen and OnClose, when the peer's output has ended. The
	// peer may have closed its side only, or the whole connection: on TCP both look alike until output
	// meets a reset. No OnData follows. If OnEnd returns true, the receiver ends the connection itself, in
	// limited time, and OnClose comes as after any other end of it, a reset included. Otherwise the driver
	// closes the connection, and OnClose(io.EOF) follows.
	OnEnd() (stays bool)
}

// Roomy is a Receiver that may have memory where its next input belongs, so that nothing is copied.
type Roomy interface {
	Receiver
	// Room is called just before a read, and returns the memory for it, or nil. A driver may ignore Room. If a read to
	// that memory brings bytes, OnData follows at once with them.
	Room() []byte
}

// Destined is a Receiver given to Dial that tells the service of its endpoint, by a key. A driver
// that secures connections chooses the TLS settings by it. After a reload another service may have
// the same name, while requests of the former one still dial.
type Destined interface {
	Receiver
	ServiceKey() string
}

// Named is a Destined whose endpoint must prove a name, if its service has TLS. "" means none in
// particular. The connection must not be used for another name.
type Named interface {
	Destined
	ServerName() string
}

// Negotiated is a Destined whose endpoint must select an application protocol (ALPN) if its
// service has TLS. An endpoint that selects another protocol, or none, is not connected to.
type Negotiated interface {
	Destined
	ALPN() string // as registered with IANA, such as "h2"
}

// Verified is a Receiver whose peer may have shown a certificate.
type Verified interface {
	Receiver
	// OnUntrusted is called, at most once, between OnOpen and OnClose, when the peer's
	// certificate has ended or is no longer accepted. The receiver must end the connection, and
	// may first end its requests in order, in limited time. A driver closes the connection of
	// a Receiver that is not Verified.
	OnUntrusted()
}

// Movable is a Receiver of an accepted connection that can continue on another loop.
type Movable interface {
	Receiver
	// MoveOut is called when the connection has input. If ok is true, the driver ends the receiver with
	// OnClose(nil), as if the connection had closed, and begins another one on the other loop, as if
	// the connection had been accepted there. That one gets past, if it is not 0, and then the input.
	MoveOut() (past int, ok bool)
	// MoveIn is called after OnOpen, with what MoveOut of the former receiver has returned.
	MoveIn(past int)
}

// Peeker is a Loop that others may read while it waits, without waking it.
type Peeker interface {
	// Peek runs f on the caller's goroutine, and reports whether it did: it does not while the loop
	// is in a turn or in another Peek, nor after the loop's end. The loop's next turn waits for f. f may
	// read what is on the loop, and must change nothing. Any goroutine but the loop's own may call Peek.
	Peek(f func()) bool
}
