package downstream

import (
	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/protocol/http1"
	"github.com/remora-proxy/remora/proxy/fault"
)

// AppendFailure appends a response that the sidecar makes itself, with a stable code in
// x-remora-error and one line of text. A nil date or request id is left out.
func AppendFailure(dst []byte, f *fault.Failure, date, id []byte, flags http1.ResponseFlags) []byte {
	var buf [5]protocol.Header
	headers := append(buf[:0],
		protocol.Header{Name: protocol.NameContentType, Value: []byte("text/plain; charset=utf-8")},
		protocol.Header{Name: protocol.NameError, Value: []byte(f.Code)})
	if f.Status == 503 || f == fault.RateLimited {
		headers = append(headers, protocol.Header{Name: []byte("Retry-After"), Value: []byte("1")})
	}
	if date != nil {
		headers = append(headers, protocol.Header{Name: protocol.NameDate, Value: date})
	}
	if id != nil {
		headers = append(headers, protocol.Header{Name: protocol.NameRequestID, Value: id})
	}
	resp := protocol.Response{
		Status: f.Status, Headers: headers,
		Body: append([]byte(f.Text), '\n'), DeclaredLength: -1,
	}
	return http1.AppendResponse(dst, &resp, flags)
}
