package protocol

import "fmt"

// Codec is the form of a message's headers and body. It travels with the request over the
// link, so that a message is converted only once, in the upstream of the application. Links
// carry its number, so the number of a codec never changes.
//
// A message of another codec than CodecHTTP is a call: its Path is the service that is
// called, and its Method a method of this service.
type Codec uint8

// CodecHTTP has HTTP semantics, and the body as received.
const CodecHTTP Codec = 0

var known = [256]bool{CodecHTTP: true}

// NewCodec returns the codec with a number that no other codec has. Packages of wire formats
// call it for variables; it panics if the number is taken.
func NewCodec(number uint8) Codec {
	if known[number] {
		panic(fmt.Sprintf("protocol: two codecs with the number %d", number))
	}
	known[number] = true
	return Codec(number)
}

// Known reports whether a wire format of this program has the codec. A later version may have
// added others.
func (c Codec) Known() bool { return known[c] }
