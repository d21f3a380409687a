package proxy

import (
	"errors"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/protocol/http1"
	"github.com/remora-proxy/remora/protocol/link"
)

// requestFailure turns a decoder's refusal into the answer to the client.
func requestFailure(err error) *Failure {
	var refused *http1.Error
	if !errors.As(err, &refused) {
		return &Failure{Code: "bad-request", Status: 400, Text: err.Error()}
	}
	return &Failure{Code: refused.Code, Status: refused.Status, Text: refused.Text}
}

// refusals maps what another sidecar says to what it means here. What a later
// version may say counts by link.Reason.Retryable.
var refusals = map[link.Reason]*Failure{
	link.Overload:          FailOverloaded,
	link.RateLimited:       FailRateLimited,
	link.Exhausted:         FailExhausted,
	link.NoSlot:            FailNoSlot,
	link.Draining:          FailDraining,
	link.NoService:         FailNoRoute,
	link.UpstreamConnect:   FailConnect,
	link.UpstreamReset:     FailReset,
	link.UpstreamMalformed: FailMalformed,
	link.ResponseTooLarge:  FailTooLarge,
	link.DeadlinePassed:    FailDeadline,
	link.UpstreamTimeout:   FailDeadline,
	link.TooLarge:          FailRequestTooLarge,
	link.Malformed:         FailBadRequest,
}

// FailureOf is what a refusal by another sidecar means to whoever waits here.
func FailureOf(why link.Reason) *Failure {
	if f := refusals[why]; f != nil {
		return f
	}
	if why.Retryable() {
		return FailOverloaded
	}
	return FailReset
}

// appendFailure appends a response of the sidecar's own: a stable code in
// x-remora-error and one line of text, with the date and the request's id where
// they are known (not nil).
func appendFailure(dst []byte, f *Failure, date, id []byte, flags http1.ResponseFlags) []byte {
	var buf [5]protocol.Header
	headers := append(buf[:0],
		protocol.Header{Name: nameContentType, Value: []byte("text/plain; charset=utf-8")},
		protocol.Header{Name: nameError, Value: []byte(f.Code)})
	if f.Status == 503 || f == FailRateLimited {
		headers = append(headers, protocol.Header{Name: []byte("Retry-After"), Value: []byte("1")})
	}
	if date != nil {
		headers = append(headers, protocol.Header{Name: nameDate, Value: date})
	}
	if id != nil {
		headers = append(headers, protocol.Header{Name: nameRequestID, Value: id})
	}
	resp := protocol.Response{
		Status: f.Status, Headers: headers,
		Body: append([]byte(f.Text), '\n'), DeclaredLength: -1,
	}
	return http1.AppendResponse(dst, &resp, flags)
}
