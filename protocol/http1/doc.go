// Package http1 decodes and encodes HTTP/1.1 messages, with the framing of RFC 9112 and the
// semantics of RFC 9110, and HTTP/1.0 for peers that use it. The HTTP sessions feed it the
// received bytes, and write what it appends. It does no I/O, keeps no connection and allocates
// nothing per message, except the path of a target such as "http://h?q".
//
// Decoding is strict: a proxy that guesses can be made to guess differently from its
// neighbour. These inputs are refused although some servers accept them:
//
//   - lines that end in a bare LF, a bare CR anywhere, folded lines (RFC 9112 sections 2.2,
//     5.2), white space before the colon (5.1)
//   - more than one empty line before a request, more than one space between the parts of a
//     request line, versions other than HTTP/1.0 and HTTP/1.1
//   - Content-Length beside Transfer-Encoding, a second Content-Length or a list in one, even
//     of equal values (6.3 allows refusing both), Transfer-Encoding other than exactly
//     "chunked", and any in HTTP/1.0
//   - chunk extensions beside the grammar of 7.1.1, such as an open quoted string
//   - a missing (1.1), second or malformed Host; user information in it
//
// These inputs are accepted although the grammar forbids them, because they delimit nothing
// and applications send them: printable ASCII in a target that RFC 3986 wants escaped, a
// percent sign that starts no escape, and a status line that ends after the status code.
//
// Headers of a decoded message are the end-to-end headers, in order of arrival and never
// merged. The decoder consumes Host (now Request.Authority), Content-Length,
// Transfer-Encoding, Expect, Connection and the fields that it nominates (but see protected),
// Keep-Alive, Proxy-Connection, TE, Upgrade (RFC 9110 section 7.6.1) and HTTP2-Settings (RFC 7540 section 3.2.1). It keeps Trailer,
// which section 6.6.2 defines as a hint to any recipient. It also keeps Proxy-Authenticate and
// Proxy-Authorization (11.7): they concern a proxy that asks for credentials, which this one
// never does.
//
// The encoder refuses what the next hop could read differently: see requestSize, responseSize.
//
//	request.go   the head of a request; target.go its target, upgrade.go what it wants to become
//	response.go  the head of a response; status.go its first line
//	head.go      Head: framing, and what the connection needs to know of a message; errors.go why one is refused
//	fields.go    the header fields; nominated.go those that Connection names
//	body.go      the body by its framing; chunked.go and chunkext.go chunks
//	encode.go    what a message looks like to the next hop; stream.go a head whose body follows as it arrives
//	chars.go     sets of bytes, eight at a time
//	read.go      how long reads and writes are
//	detect.go    which protocol the first bytes of a connection are
package http1
