package fault

import (
	"errors"

	"github.com/remora-proxy/remora/protocol/dubbo"
	"github.com/remora-proxy/remora/protocol/http1"
)

// OfRequest turns a decoder's refusal into the answer to the client.
func OfRequest(err error) *Failure {
	var refused *http1.Error
	if !errors.As(err, &refused) {
		return &Failure{Code: "bad-request", Status: 400, Text: err.Error()}
	}
	return &Failure{Code: refused.Code, Status: refused.Status, Text: refused.Text}
}

// OfCall turns a refusal of the codec's into the answer to the caller.
func OfCall(err error) *Failure {
	var refused *dubbo.Error
	if !errors.As(err, &refused) {
		return BadRequest
	}
	return &Failure{Code: refused.Code, Status: refused.Status, Text: refused.Text}
}
