package dubbo

import "bytes"

// AppendHeartbeat appends a heartbeat that expects a response.
func AppendHeartbeat(dst []byte, serialization byte, id int64) []byte {
	return AppendFrame(dst, &Frame{
		Request: true, TwoWay: true, Event: true, Serialization: serialization, ID: id, Body: nullBody(serialization, nil),
	})
}

// AppendHeartbeatAnswer appends the response to the event f, in the peer's serialization. If
// that is unknown, the response repeats the peer's own null.
func AppendHeartbeatAnswer(dst []byte, f *Frame) []byte {
	return AppendFrame(dst, &Frame{
		Event: true, Serialization: f.Serialization, Status: StatusOK, ID: f.ID, Body: nullBody(f.Serialization, f.Body),
	})
}

// The null and the read-only event of both serializations.
var (
	nullHessian2     = []byte("N")
	nullFastjson     = []byte("null\n")
	readOnlyHessian2 = []byte("\x01R")
	readOnlyFastjson = []byte("\"R\"\n")
)

// nullBody returns a body that encodes null, or other if the serialization is unknown.
func nullBody(serialization byte, other []byte) []byte {
	switch serialization {
	case Hessian2:
		return nullHessian2
	case Fastjson:
		return nullFastjson
	}
	return other
}

// ReadOnly reports whether f is the event of a provider that shuts down: it accepts no more
// calls on the connection, but still responds to earlier ones.
func ReadOnly(f *Frame) bool {
	return f.Event && (f.Serialization == Hessian2 && bytes.Equal(f.Body, readOnlyHessian2) ||
		f.Serialization == Fastjson && bytes.Equal(f.Body, readOnlyFastjson))
}

// AppendReadOnly appends the event that ReadOnly recognizes.
func AppendReadOnly(dst []byte, serialization byte) []byte {
	body := readOnlyHessian2
	if serialization == Fastjson {
		body = readOnlyFastjson
	}
	return AppendFrame(dst, &Frame{Request: true, Event: true, Serialization: serialization, Body: body})
}
