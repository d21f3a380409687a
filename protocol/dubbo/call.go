package dubbo

import "github.com/remora-proxy/remora/protocol"

// maxArguments is the most that a Java method may have (JVMS section 4.3.3).
const maxArguments = 255

// Call is a call that came as HTTP and leaves as Dubbo. It is used again and
// again: what it has grown to it keeps. Its slices alias the request or memory
// of its own, and are valid until the next Parse.
type Call struct {
	Interface []byte
	Version   []byte // of the service; empty: none
	Group     []byte // of the service; empty: none
	Method    []byte
	Types     []byte // JVM descriptors of the parameters, concatenated

	// Bare tells that the caller sent a form, and wants nothing but the result.
	Bare bool

	scratch []byte
}

// Parse reads an HTTP request: a form (application/x-www-form-urlencoded) to any
// path, or JSON to /interface/method.
func (c *Call) Parse(req *protocol.Request) error { return ErrNotCall }

// AppendFrame appends the call as a request, with the given serialization. On
// errors dst is returned as it was.
func (c *Call) AppendFrame(dst []byte, serialization byte, id int64) ([]byte, error) {
	return dst, ErrSerialization
}
