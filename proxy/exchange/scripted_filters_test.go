package exchange

import (
	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/race"
)

// scriptedFilter is a filter that does what its name says.
type scriptedFilter struct {
	*scriptedExchange
	name string
}

func (f scriptedFilter) Retire()       {}
func (f scriptedFilter) End(*Exchange) { f.note("end of %s", f.name) }

func (f scriptedFilter) Request(ex *Exchange) Next {
	f.note("request to %s", f.name)
	switch f.held = ex; f.name {
	case "holding":
		return Wait
	case "refusing":
		ex.Refuse(fault.Injected)
		return Decided
	case "answering", "storing":
		ex.Answer(f.response(203))
		return Decided
	}
	return Continue
}

// scriptedOutcomeFilter is a scriptedFilter that sees outcomes.
type scriptedOutcomeFilter struct{ scriptedFilter }

func (f scriptedOutcomeFilter) Response(ex *Exchange, res *race.Response) *race.Response {
	f.note("response %d to %s, %d headers", res.Status, f.name, len(res.Headers))
	switch f.held = ex; f.name {
	case "replacing":
		res.Release()
		return f.response(299)
	case "keeping":
		res.Release()
		return nil
	}
	return res
}

func (f scriptedOutcomeFilter) Failure(ex *Exchange, why *fault.Failure) Next {
	f.note("failure %s to %s", why.Code, f.name)
	switch f.held = ex; f.name {
	case "replacing":
		ex.Fallback = Fallback{Reason: config.FallbackReasons[0], Code: why.Code}
		ex.Answer(f.response(299))
		return Decided
	case "keeping":
		return Wait
	}
	return Continue
}

// scriptedEarlyFilter is a scriptedFilter that may answer early.
type scriptedEarlyFilter struct{ scriptedFilter }

func (f scriptedEarlyFilter) Early(ex *Exchange) bool {
	f.note("early, %d headers", len(ex.Request.Headers))
	if f.name == "early" {
		return false
	}
	ex.Answer(f.response(204))
	return true
}
