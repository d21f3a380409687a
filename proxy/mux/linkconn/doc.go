// Package linkconn has what both ends of a link share. downstream/link is the accepting end,
// upstream/link the dialling one.
//
//	conn.go      the codec on a connection, the flush at the end of a turn, credit, keepalive
//	state.go     the state of a link
//	settings.go  what this sidecar announces, and the limits of a message on a link
//
// It knows nothing of exchanges.
package linkconn
