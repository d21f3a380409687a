package http2

import (
	"cmp"
	"time"
)

// Floods limits what a peer may do without useful work in return. Useful work takes one off each
// count: a completed request, or but for Resets and Provoked, a DATA frame with data of either
// side. In Others such a frame takes off two, as HAProxy opens two windows for each. Each 512 bytes
// of DATA sent to the peer pay for one of Others, also later: clients open windows in small steps,
// as they read. Each second (see Conn.Advance) takes off a tenth of the limit. Above a limit the
// connection ends with ENHANCE_YOUR_CALM. In each field 0 means the default.
type Floods struct {
	Resets        int // server: RST_STREAM received in the first second of a stream ("rapid reset"); default 1000
	Provoked      int // errors that make us send RST_STREAM ("made you reset"); default 200
	Continuations int // CONTINUATION frames of one header block; default 32
	Pings         int // PING received; default 200
	Settings      int // SETTINGS received that set something; default 1000
	EmptyData     int // DATA frames without data and end; default 200

	// Others are WINDOW_UPDATE, PRIORITY, empty SETTINGS, frames of unknown types or of streams that are over, and interim
	// responses after the first 32 of a request; default 10000.
	Others int
}

// flood is a kind of abuse with a count that falls with useful work and time.
type flood uint8

const (
	floodResets flood = iota
	floodProvoked
	floodPings
	floodSettings
	floodEmptyData
	floodOthers
	floodKinds
)

// floodErrors say what the peer did too often.
var floodErrors = [floodKinds]*Error{
	floodResets: ErrResets, floodProvoked: ErrProvoked, floodPings: ErrPings,
	floodSettings: ErrSettingsFlood, floodEmptyData: ErrEmptyData, floodOthers: ErrOthers,
}

// floods counts abuse. A count is brought up to date only when its kind occurs, so that useful
// work costs one addition.
type floods struct {
	limits        [floodKinds]int
	continuations int
	counts        [floodKinds]struct {
		n, work int
		at      time.Duration
	}
	requests int           // completed so far
	data     int           // DATA frames so far
	sent     int           // bytes of those that we sent
	spent    int           // of Others, those that sent has paid for
	latest   time.Duration // the latest time that the loop has passed
}

func newFloods(o Floods) floods {
	return floods{
		limits: [floodKinds]int{
			floodResets: cmp.Or(o.Resets, 1000), floodProvoked: cmp.Or(o.Provoked, 200), floodPings: cmp.Or(o.Pings, 200),
			floodSettings: cmp.Or(o.Settings, 1000), floodEmptyData: cmp.Or(o.EmptyData, 200), floodOthers: cmp.Or(o.Others, 10_000),
		},
		continuations: cmp.Or(o.Continuations, 32),
	}
}

// advance passes the loop's time.
func (f *floods) advance(now time.Duration) { f.latest = max(f.latest, now) }

// now returns the latest time that the loop has passed.
func (f *floods) now() time.Duration { return f.latest }

// onRequest notes that a request was completed.
func (f *floods) onRequest() { f.requests++ }

// onData notes DATA frames with data, and the bytes in those that we have sent.
func (f *floods) onData(frames, sent int) {
	f.data += frames
	f.sent += sent
}

// excludes reports whether a header block may not have so many CONTINUATION frames.
func (f *floods) excludes(continuations int) bool { return continuations > f.continuations }

// useful returns the useful work so far. That of requests which are given up is none.
func (f *floods) useful(k flood) int {
	switch k {
	case floodResets, floodProvoked:
		return f.requests
	case floodOthers:
		return f.requests + 2*f.data
	}
	return f.requests + f.data
}

const (
	// maxUnspent is the largest number of frames for which DATA pays in advance. A client of Go opens two windows
	// for each 4 KiB that it reads, and may have taken 4 MiB for each of 250 streams before.
	maxUnspent = 512 << 10

	// rapid is the age of a stream up to which its RST_STREAM counts. Callers that give up later are ordinary.
	rapid = time.Second
)

// spend reports whether DATA has paid for one of Others.
func (f *floods) spend() bool {
	paid := f.sent / usefulBytes
	if f.spent = max(f.spent, paid-maxUnspent); f.spent == paid {
		return false
	}
	f.spent++
	return true
}

// add counts one of a kind. It returns an error above the limit.
func (f *floods) add(k flood) *Error {
	if k == floodOthers && f.spend() {
		return nil
	}
	c, work := &f.counts[k], f.useful(k)
	forgiven := work - c.work
	// The time of a tenth of the limit's unit, so that short times are not lost.
	if each := max(10*time.Second/time.Duration(max(f.limits[k], 1)), 1); f.latest-c.at >= each {
		units := (f.latest - c.at) / each
		forgiven += int(min(units, time.Duration(f.limits[k])))
		c.at += units * each
	}
	c.work = work
	c.n = max(0, c.n-forgiven) + 1
	if c.n > f.limits[k] {
		return floodErrors[k]
	}
	return nil
}
