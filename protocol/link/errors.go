package link

// Error says why a link must be closed. All instances are package variables, so returning one
// allocates nothing, and they can be compared with ==.
type Error struct {
	Code string // stable, for logs and metrics
	Text string // one line for people
}

// Error implements error.
func (e *Error) Error() string { return "link: " + e.Text + " (" + e.Code + ")" }

// Errors of Reader.Feed. After any of them the link must be closed.
var (
	ErrMagic       = &Error{"link_magic", "the peer does not speak the link protocol"}
	ErrRole        = &Error{"link_role", "both sides dialled, or a frame that the peer's side may not send"}
	ErrVersion     = &Error{"link_version", "no protocol version in common with the peer"}
	ErrRefused     = &Error{"link_version_refused", "the peer supports none of the offered versions"}
	ErrSettings    = &Error{"link_settings", "malformed or unusable settings in the preface"}
	ErrStreamKind  = &Error{"link_stream_kind", "a stream of an unknown kind"}
	ErrVarint      = &Error{"link_varint", "a variable-length integer is too long or not in its shortest form"}
	ErrFrameType   = &Error{"link_frame_type", "an unknown frame type that may not be skipped"}
	ErrFrameSize   = &Error{"link_frame_size", "a frame is longer than agreed"}
	ErrPayload     = &Error{"link_payload", "the payload of a control frame is malformed"}
	ErrStreamID    = &Error{"link_stream_id", "a stream id is zero, used twice or out of order"}
	ErrOverrun     = &Error{"link_overrun", "more DATA than the message announced"}
	ErrFlowControl = &Error{"link_flow_control", "more DATA than was granted"}
	ErrDefine      = &Error{"link_define", "a definition is out of order, too large or holds control characters"}
	ErrIndex       = &Error{"link_index", "a reference to a name that was never defined"}
	ErrSlow        = &Error{"link_slow", "a frame takes too long to arrive"}
	ErrHead        = &Error{"link_head", "the head of a message is malformed"}
)
