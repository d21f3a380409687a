package dubbo

import (
	"slices"

	"github.com/remora-proxy/remora/protocol/dubbo"
	"github.com/remora-proxy/remora/proxy/exchange"
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/mux"
	"github.com/remora-proxy/remora/proxy/race"
)

// calls has the calls in flight. It is their exchange.Caller. Responses are sent as they arrive, in any order.
//
// Calls in: input adds a call (add). memory asks what all hold (held, largest), and the ending ends them (cancelAll).
//
// Calls out: responses go into output.buffer, the long ones to output.writeLong.
type calls struct {
	*session
	all []*exchange.Exchange // CallIndex is the index of each
}

// add adds a call that is about to begin.
func (cs *calls) add(ex *exchange.Exchange) {
	ex.Charge()
	ex.CallIndex = len(cs.all)
	cs.all = append(cs.all, ex)
}

// remove removes a call that has its response; the last one in flight gets its place.
func (cs *calls) remove(ex *exchange.Exchange) {
	last := len(cs.all) - 1
	moved := cs.all[last]
	cs.all[ex.CallIndex], cs.all[last] = moved, nil
	moved.CallIndex = ex.CallIndex
	cs.all = cs.all[:last]
}

func (cs *calls) len() int { return len(cs.all) }

// inFlight returns all calls, valid until the next one is added or removed.
func (cs *calls) inFlight() []*exchange.Exchange { return cs.all }

// cancelAll cancels all calls. The session closes.
func (cs *calls) cancelAll() {
	for _, ex := range cs.all {
		ex.Cancel()
	}
	cs.all = nil
}

// held returns the bytes of all calls, and of their responses so far.
func (cs *calls) held() (n int) {
	for _, ex := range cs.all {
		n += ex.Buffered()
	}
	return n
}

// largest returns the call that holds the most, and how many bytes it holds.
func (cs *calls) largest() (ex *exchange.Exchange, held int) {
	return exchange.LargestOf(slices.Values(cs.all))
}

var _ exchange.Caller = (*calls)(nil)

// Encode implements exchange.Caller. It refuses responses that are not Dubbo.
func (cs *calls) Encode(_ *exchange.Exchange, res *race.Response) *fault.Failure {
	if res.RPC == 0 || res.Source != nil {
		return fault.Malformed
	}
	return nil
}

func (cs *calls) Respond(ex *exchange.Exchange, res *race.Response) {
	cs.remove(ex)
	if !ex.Request.OneWay {
		f := dubbo.Frame{
			Serialization: dubbo.SerializationOf(res.Codec), Status: dubbo.Status(res.RPC), ID: int64(ex.StreamID), Body: res.Body,
		}
		if out := cs.output.buffer(); len(f.Body) <= mux.BatchSize {
			out.B = dubbo.AppendFrame(out.B, &f)
		} else {
			out.B = dubbo.AppendHeader(out.B, &f)
			cs.output.writeLong(f.Body)
		}
	}
	res.Release()
}

// Fail implements exchange.Caller.
func (cs *calls) Fail(ex *exchange.Exchange, f *fault.Failure) {
	cs.remove(ex)
	if !ex.Request.OneWay {
		out := cs.output.buffer()
		out.B = dubbo.AppendFailure(out.B, dubbo.SerializationOf(ex.Request.Codec), int64(ex.StreamID), statusOf(f), f.Code, f.Text)
	}
}

func statusOf(f *fault.Failure) dubbo.Status {
	switch f {
	case fault.Malformed:
		return dubbo.StatusBadResponse
	case fault.NotConvertible:
		return dubbo.StatusServiceNotFound
	case fault.NotAllowed: // as when a filter of Dubbo throws an RpcException, which is not retried
		return dubbo.StatusServiceError
	}
	return dubbo.StatusOf(f.Status)
}

// Concurrency implements exchange.Caller.
func (cs *calls) Concurrency(ex *exchange.Exchange, most int) int {
	return exchange.Together(ex, most, slices.Values(cs.all))
}

// OverShare implements exchange.Caller.
func (cs *calls) OverShare(ex *exchange.Exchange) bool { return cs.memory.overShare(ex) }

// Finished implements exchange.Caller. Dubbo has no word for it.
func (cs *calls) Finished(*exchange.Exchange, race.Ended) {}
