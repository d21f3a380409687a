package dubbo

// AppendReadOnly appends the event that ReadOnly tells of.
func AppendReadOnly(dst []byte, serialization byte) []byte {
	body := readOnlyHessian2
	if serialization == Fastjson {
		body = readOnlyFastjson
	}
	return AppendFrame(dst, &Frame{Request: true, Event: true, Serialization: serialization, Body: body})
}

var (
	readOnlyHessian2 = []byte("\x01R")
	readOnlyFastjson = []byte("\"R\"\n")
)
