package downstream

import (
	"fmt"
	"strconv"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/protocol/http1"
	"github.com/remora-proxy/remora/proxy/exchange"
	"github.com/remora-proxy/remora/proxy/fault"
)

// AppendFailure appends a response that the sidecar makes itself, with a stable code in
// x-remora-error and one line of text. A nil date or request id is left out. A client of another
// protocol gets what ends a connection there.
func AppendFailure(dst []byte, f *fault.Failure, date, id []byte, flags http1.ResponseFlags) []byte {
	if f == fault.TLSNotServed {
		return appendAlert(dst)
	}
	var buf [failureHeaders]protocol.Header
	resp := FailureResponse(buf[:0], f, date, id)
	return http1.AppendResponse(dst, &resp, flags)
}

const failureHeaders = 5 // at most, of a FailureResponse

// FailureResponse returns the response of AppendFailure. Its headers are appended to hs.
func FailureResponse(hs []protocol.Header, f *fault.Failure, date, id []byte) protocol.Response {
	headers := append(hs,
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
	return protocol.Response{
		Status: f.Status, Headers: headers,
		Body: append([]byte(f.Text), '\n'), DeclaredLength: -1,
	}
}

// GRPCFailure returns the response for a gRPC caller to a request that failed with f. It has headers
// alone, which say the code, the text and x-remora-error. Its memory is its own. A nil request id is
// left out.
func GRPCFailure(f *fault.Failure, id []byte) protocol.Response {
	resp := protocol.Response{Status: 200, DeclaredLength: -1, Headers: []protocol.Header{
		{Name: protocol.NameContentType, Value: protocol.GRPCType},
		{Name: protocol.NameGRPCStatus, Value: strconv.AppendUint(nil, uint64(f.GRPC()), 10)},
		{Name: protocol.NameGRPCMessage, Value: protocol.AppendGRPCMessage(nil, f.Text)},
		{Name: protocol.NameError, Value: []byte(f.Code)},
	}}
	if id != nil {
		resp.Headers = append(resp.Headers, protocol.Header{Name: protocol.NameRequestID, Value: id})
	}
	return resp
}

// maxShownHost bounds the host in the text of a failure. Names of the DNS are shorter.
const maxShownHost = 256

// WithHost returns f, with which ex failed. If no route takes the request, the text of the result names its host,
// which routes were compared with.
func WithHost(ex *exchange.Exchange, f *fault.Failure) *fault.Failure {
	if f != fault.NoRoute || ex.Route != nil { // with a route it is a refusal of the other sidecar
		return f
	}
	named := *f
	switch host := ex.Request.Authority; {
	case len(host) == 0:
		named.Text += ", which names no host"
	case len(host) > maxShownHost:
		named.Text += fmt.Sprintf(", whose host begins with %+q", host[:maxShownHost])
	default:
		named.Text += fmt.Sprintf(", whose host is %+q", host)
	}
	return &named
}
