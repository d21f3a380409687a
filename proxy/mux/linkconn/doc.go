// Package linkconn is what both ends of a link share: the codec on a connection, the
// flush at the end of a turn, the grant of credit, and the watch over a silent peer.
// downstream/link is the accepting end, upstream/link the dialling one.
//
// It knows nothing of exchanges.
package linkconn
