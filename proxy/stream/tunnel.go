package stream

import (
	"time"

	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/telemetry/accesslog"
)

// tunnel is a stream of opaque bytes.
type tunnel struct {
	*pair
	wish
	rest []byte // came already
	// What down is told: that the stream is open, and why it is not. Without
	// words for that it is reset, and only errors_total tells.
	taken []byte
	words func(*fault.Failure) []byte

	status int // of what it is told, if that has one
	trail  *accesslog.StreamRecord
}

func (t *tunnel) run() {
	cfg := t.srv.service(t.service)
	if (t.down.secure || cfg.TLS.Enabled()) && t.srv.opt.Process.Full() { // else no buffer is needed
		t.fail(fault.Overloaded)
		return
	}
	early := t.srv.early(t.rest)
	t.rest = nil
	defer early.free()
	lease, _, fail := t.connect(&t.wish)
	if fail != nil {
		t.fail(fail)
		return
	}
	_ = t.down.SetWriteDeadline(time.Now().Add(t.srv.config().Timeouts.Write))
	if _, err := t.down.Write(t.taken); err != nil {
		t.cut()
	}
	_ = t.down.SetWriteDeadline(time.Time{})
	lease.Connected(0)
	watch := t.watch()
	defer watch.stop()
	in, out := t.relay(early)
	lease.Close(true, in, out)
	t.trail.End(accesslog.StreamEnd{Status: t.status, Cut: t.isCut(), Endpoint: t.at, In: in, Out: out})
}

func (t *tunnel) fail(f *fault.Failure) {
	t.trail.End(accesslog.StreamEnd{Failure: f, Cut: t.isCut(), Endpoint: t.at})
	t.refuse(t.words(f))
}

// silent is for streams that know no words.
func silent(*fault.Failure) []byte { return nil }

// connected answers a CONNECT (RFC 9110 section 9.3.6).
const connected = "HTTP/1.1 200 OK\r\nVia: 1.1 remora\r\n\r\n"
