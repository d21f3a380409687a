package dubbo

// AppendHeartbeat appends a heartbeat that wants an answer.
func AppendHeartbeat(dst []byte, serialization byte, id int64) []byte {
	return AppendFrame(dst, &Frame{
		Request: true, TwoWay: true, Event: true, Serialization: serialization, ID: id, Body: nullBody(serialization, nil),
	})
}

// AppendHeartbeatAnswer appends the answer to the event f, in the serialization
// of the peer. In one that is unknown its own null is as good as any.
func AppendHeartbeatAnswer(dst []byte, f *Frame) []byte {
	return AppendFrame(dst, &Frame{
		Event: true, Serialization: f.Serialization, Status: StatusOK, ID: f.ID, Body: nullBody(f.Serialization, f.Body),
	})
}

var (
	nullHessian2 = []byte("N")
	nullFastjson = []byte("null\n")
)

// nullBody is a body that holds null, or other where the serialization is
// unknown.
func nullBody(serialization byte, other []byte) []byte {
	switch serialization {
	case Hessian2:
		return nullHessian2
	case Fastjson:
		return nullFastjson
	}
	return other
}

// ReadOnly tells whether the event f is that of a provider that is going down
// and wants no more requests on this connection; those it has it still answers.
func ReadOnly(f *Frame) bool {
	body := string(f.Body)
	return f.Event && (f.Serialization == Hessian2 && body == "\x01R" || f.Serialization == Fastjson && body == "\"R\"\n")
}
