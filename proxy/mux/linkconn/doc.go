// Package linkconn has what both ends of a link share. downstream/link is the accepting end,
// upstream/link the dialling one.
//
//	conn.go      the codec on a connection, the flush at the end of a turn, credit, keepalive
//	state.go     the state of a link
//	settings.go  what this sidecar announces, and the limits of a message on a link
//
// Credit bounds only what is on the way: it is given back as bytes arrive. What they become is bounded by
// limits.buffered, which Conn.Account charges. A link that holds more than its share then begins no message.
//
// It knows nothing of exchanges.
package linkconn
