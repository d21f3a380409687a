package fault

import (
	"errors"

	"github.com/remora-proxy/remora/protocol/dubbo"
	"github.com/remora-proxy/remora/protocol/http1"
)

// OfRequest returns the failure for a client whose request the HTTP decoder refused with err.
func OfRequest(err error) *Failure {
	var refused *http1.Error
	if !errors.As(err, &refused) {
		return &Failure{Code: "bad-request", Status: 400, Text: err.Error()}
	}
	return &Failure{Code: refused.Code, Status: refused.Status, Text: refused.Text}
}

// OfCall returns the failure for a caller whose call the Dubbo codec refused with err.
func OfCall(err error) *Failure {
	var refused *dubbo.Error
	if !errors.As(err, &refused) {
		return BadRequest
	}
	return &Failure{Code: refused.Code, Status: refused.Status, Text: refused.Text}
}
