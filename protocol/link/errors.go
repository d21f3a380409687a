package link

// Error is why a link must be closed. Its values are package variables, so
// nothing is allocated when one is returned, and they compare with ==.
type Error struct {
	Code string // stable, for logs and metrics
	Text string // one line for people
}

// Error implements error.
func (e *Error) Error() string { return "link: " + e.Text + " (" + e.Code + ")" }

// What Reader.Feed returns. After any of them the link is of no use.
var (
	ErrMagic       = &Error{"link_magic", "the peer does not speak the link protocol"}
	ErrRole        = &Error{"link_role", "both sides dialled, or a frame that the peer's side may not send"}
	ErrVersion     = &Error{"link_version", "no protocol version in common with the peer"}
	ErrRefused     = &Error{"link_version_refused", "the peer supports no version that we offered"}
	ErrSettings    = &Error{"link_settings", "malformed or unusable settings in the preface"}
	ErrStreamKind  = &Error{"link_stream_kind", "a stream of a kind that is unknown"}
	ErrVarint      = &Error{"link_varint", "a variable-length integer is too long or not in its shortest form"}
	ErrFrameType   = &Error{"link_frame_type", "a frame type that is unknown and may not be skipped"}
	ErrFrameSize   = &Error{"link_frame_size", "a frame is longer than agreed"}
	ErrPayload     = &Error{"link_payload", "the payload of a control frame does not have its form"}
	ErrStreamID    = &Error{"link_stream_id", "a stream id is zero, used twice or out of order"}
	ErrOverrun     = &Error{"link_overrun", "more DATA than the message announced"}
	ErrFlowControl = &Error{"link_flow_control", "more DATA than was granted"}
	ErrDefine      = &Error{"link_define", "a definition is out of order, too large or holds control characters"}
	ErrIndex       = &Error{"link_index", "a reference to a name that was never defined"}
	ErrSlow        = &Error{"link_slow", "a frame does not come to its end"}
	ErrHead        = &Error{"link_head", "the head of a message is malformed"}
)
