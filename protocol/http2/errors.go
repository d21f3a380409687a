package http2

// Code is an error code of RFC 9113 section 7.
type Code uint32

// The registered codes.
const (
	NoError            Code = 0x0
	ProtocolError      Code = 0x1
	InternalError      Code = 0x2
	FlowControlError   Code = 0x3
	SettingsTimeout    Code = 0x4
	StreamClosed       Code = 0x5
	FrameSizeError     Code = 0x6
	RefusedStream      Code = 0x7
	Cancel             Code = 0x8
	CompressionError   Code = 0x9
	ConnectError       Code = 0xa
	EnhanceYourCalm    Code = 0xb
	InadequateSecurity Code = 0xc
	HTTP11Required     Code = 0xd
)

// Error says what a peer did wrong. All instances are variables of this package, so they can be
// compared and cost nothing to return.
type Error struct {
	Code   Code   // for GOAWAY or RST_STREAM
	Reason string // stable, in snake case: for logs and metrics
	Text   string // one line for people
}

// Error implements error.
func (e *Error) Error() string { return "http2: " + e.Text + " (" + e.Reason + ")" }

// Errors of the connection.
var (
	ErrPreface     = &Error{ProtocolError, "h2_preface", "the peer does not begin with the preface of HTTP/2"}
	ErrFrameSize   = &Error{FrameSizeError, "h2_frame_size", "a frame is too long or too short"}
	ErrStreamID    = &Error{ProtocolError, "h2_stream_id", "a frame on a stream that can't have it"}
	ErrIdle        = &Error{ProtocolError, "h2_idle_stream", "a frame on a stream that has not begun"}
	ErrEnded       = &Error{StreamClosed, "h2_ended_stream", "a frame on a stream that is over"}
	ErrPadding     = &Error{ProtocolError, "h2_padding", "padding longer than the frame"}
	ErrSettings    = &Error{ProtocolError, "h2_settings", "a setting out of range"}
	ErrWindowSize  = &Error{FlowControlError, "h2_window_size", "an initial window over 2^31-1"}
	ErrPush        = &Error{ProtocolError, "h2_push", "PUSH_PROMISE, which is not allowed"}
	ErrInterleaved = &Error{ProtocolError, "h2_interleaved", "a frame within a header block, or CONTINUATION outside"}
	ErrCompression = &Error{CompressionError, "h2_compression", "a header block can't be decompressed"}
	ErrOverflow    = &Error{FlowControlError, "h2_window_overflow", "a window above 2^31-1"}
	ErrIncrement   = &Error{ProtocolError, "h2_window_increment", "WINDOW_UPDATE of 0"}
)

// Errors of the connection for abuse: see Floods.
var (
	ErrResets        = &Error{EnhanceYourCalm, "h2_flood_resets", "too many RST_STREAM"}
	ErrProvoked      = &Error{EnhanceYourCalm, "h2_flood_provoked", "too many errors that reset streams"}
	ErrContinuations = &Error{EnhanceYourCalm, "h2_flood_continuations", "too many CONTINUATION, or too long a header block"}
	ErrPings         = &Error{EnhanceYourCalm, "h2_flood_pings", "too many PING"}
	ErrSettingsFlood = &Error{EnhanceYourCalm, "h2_flood_settings", "too many SETTINGS"}
	ErrEmptyData     = &Error{EnhanceYourCalm, "h2_flood_empty_data", "too many empty DATA"}
	ErrOthers        = &Error{EnhanceYourCalm, "h2_flood_others", "too many frames without use"}
	ErrControl       = &Error{EnhanceYourCalm, "h2_flood_control", "the peer does not read the responses to its control frames"}
)

// Errors of a stream.
var (
	ErrHalfClosed  = &Error{StreamClosed, "h2_half_closed", "a frame behind the end of its message"}
	ErrStreamFlow  = &Error{FlowControlError, "h2_stream_flow_control", "more DATA than the stream's window allows"}
	ErrDependency  = &Error{ProtocolError, "h2_self_dependency", "a stream that depends on itself"}
	ErrTooMany     = &Error{RefusedStream, "h2_too_many_streams", "more streams at a time than announced"}
	ErrUnprocessed = &Error{RefusedStream, "h2_unprocessed", "the peer goes away and has not processed the request"}
	ErrField       = &Error{ProtocolError, "h2_field", "a malformed field, or one of a connection"}
	ErrPseudo      = &Error{ProtocolError, "h2_pseudo_field", "a pseudo-header field that is unknown, repeated, misplaced, missing or malformed"}
	ErrTarget      = &Error{ProtocolError, "h2_target", "a malformed target"}
	ErrAuthority   = &Error{ProtocolError, "h2_authority", "a malformed or missing authority, or a different Host"}
	ErrLength      = &Error{ProtocolError, "h2_content_length", "a Content-Length that is malformed, repeated or wrong"}
	ErrTrailers    = &Error{ProtocolError, "h2_trailers", "trailers that do not end the stream"}
	ErrHeadSize    = &Error{EnhanceYourCalm, "h2_head_size", "a head over the limits"}
	ErrNoRoom      = &Error{Cancel, "h2_no_room", "no memory for a head: see Handler.MayGrow"}
	ErrInterim     = &Error{ProtocolError, "h2_interim", "an interim response that ends the stream, or with status 101"}
	ErrNoHead      = &Error{ProtocolError, "h2_no_head", "DATA before the response"}
)
