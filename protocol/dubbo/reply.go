package dubbo

// Reply is the head of an HTTP response made of a Dubbo answer.
type Reply struct {
	Status      int    // HTTP status
	Code        string // for x-remora-error; "" when the call returned
	ContentType string
}

// AppendReply appends the body of an HTTP response that says what the answer f
// does, for a call that came as a form (bare) or as JSON.
func AppendReply(dst []byte, f *Frame, bare bool) ([]byte, Reply, error) {
	return dst, Reply{}, ErrSerialization
}

// AppendFailure appends an answer with a status other than OK: code and text are
// its message. In a serialization that is unknown the caller is told in
// hessian2, which all speak.
func AppendFailure(dst []byte, serialization byte, id int64, s Status, code, text string) []byte {
	return dst
}
