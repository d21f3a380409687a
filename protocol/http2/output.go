package http2

import "github.com/remora-proxy/remora/protocol/http2/hpack"

// output has the frames for the next Output, in the order of the calls. It makes those without flow control, all but DATA.
type output struct {
	out     []byte
	enc     hpack.Encoder
	control int // bytes of responses to control frames in out
}

// preface queues what a client sends first.
func (o *output) preface() { o.out = append(o.out, Preface...) }

// settings queues SETTINGS.
func (o *output) settings(all ...settingValue) {
	at := len(o.out)
	o.out = appendFrame(o.out, 0, frameSettings, 0, 0)
	for _, s := range all {
		o.out = appendSetting(o.out, s.name, s.value)
	}
	putLength(o.out, at)
}

// ping queues a PING that asks for a response.
func (o *output) ping(data uint64) { o.out = appendPing(o.out, 0, data) }

// goAway queues a GOAWAY.
func (o *output) goAway(last uint32, code Code) { o.out = appendGoAway(o.out, last, code) }

// openWindow queues a WINDOW_UPDATE of a stream, or of the connection if id is 0.
func (o *output) openWindow(id uint32, n int) { o.out = appendWindowUpdate(o.out, id, n) }

// The following frames respond to frames of the peer. They count until Output: a peer that does not read them must not
// make us keep ever more.

// ackSettings queues the acknowledgement of the peer's SETTINGS.
func (o *output) ackSettings() {
	o.out = appendFrame(o.out, 0, frameSettings, flagAck, 0)
	o.control += frameHead
}

// pong queues the response to a PING.
func (o *output) pong(data uint64) {
	o.out = appendPing(o.out, flagAck, data)
	o.control += frameHead + 8
}

// resetStream queues a RST_STREAM.
func (o *output) resetStream(id uint32, code Code) {
	o.out = appendRSTStream(o.out, id, code)
	o.control += frameHead + 4
}

// reopenWindow queues a WINDOW_UPDATE of the connection, for DATA that the peer has sent.
func (o *output) reopenWindow(n int) {
	o.openWindow(0, n)
	o.control += frameHead + 4
}

// isUnread reports whether too many responses to frames of the peer wait for Output.
func (o *output) isUnread() bool { return o.control > controlBound }

// setTable sets the size of the peer's compression table.
func (o *output) setTable(size int) { o.enc.SetMax(size) }
