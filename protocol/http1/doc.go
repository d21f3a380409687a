// Package http1 turns bytes into requests and responses and back: HTTP/1.1 as
// RFC 9112 frames it and RFC 9110 means it, HTTP/1.0 where a peer speaks it. It
// does no I/O and allocates nothing per message; the sessions of the core feed
// it what arrived and write what it appends.
//
// Decoding is strict, because a proxy that guesses can be made to guess
// differently from its neighbour. What is refused although some servers take it:
//
//   - lines that end in a bare LF, a bare CR anywhere, folded lines (RFC 9112
//     sections 2.2, 5.2), white space before the colon (5.1)
//   - more than one empty line before a request, more than one space between
//     the parts of a request line, versions other than HTTP/1.0 and HTTP/1.1
//   - Content-Length beside Transfer-Encoding, a second Content-Length or a
//     list in one, even of equal values (6.3 allows to refuse both),
//     Transfer-Encoding other than exactly "chunked", and any in HTTP/1.0
//   - a missing (1.1), second or malformed Host; user information in it
//
// What is let through although the grammar has it otherwise, since it delimits
// nothing and unmodified applications do send it: printable ASCII in a target
// that RFC 3986 wants escaped, a percent sign that starts no escape, and a
// status line that ends after the status code.
//
// Headers of a decoded message are the end-to-end ones, in order of arrival and
// never merged. Consumed here and left out are Host (it is in
// Request.Authority), Content-Length, Transfer-Encoding, Expect, Connection,
// what Connection nominates, Keep-Alive, Proxy-Connection, TE and Upgrade (RFC
// 9110 section 7.6.1). Left in are Trailer, which section 6.6.2 keeps as a hint
// to any recipient, and Proxy-Authenticate and Proxy-Authorization (11.7), which
// concern a proxy that asked for credentials: this one never does, so they are
// for somebody further on.
//
// Nominating a field in Connection removes it, except where that would let a
// peer strip what others rely on: see protected.
//
// Encoding refuses what could be read as something else by the next hop: see
// ValidRequest and ValidResponse.
package http1
