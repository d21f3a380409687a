package dubbo

// Error is a refusal. All instances are variables of this package, so they can
// be compared and cost nothing to return.
type Error struct {
	Code   string // stable, kebab-case: for x-remora-error, logs and metrics
	Status int    // HTTP status that a request refused for it is answered with
	Text   string // one line for people
}

// Error returns the text with the package's name before it.
func (e *Error) Error() string { return "dubbo: " + e.Text }

// Refusals of a frame: after any of them the connection is of no use.
var (
	ErrMagic         = &Error{"dubbo-magic", 400, "the peer does not speak Dubbo"}
	ErrFrameTooLarge = &Error{"message-too-large", 413, "a frame's body is negative or too long"}
)

// Refusals of a body.
var (
	ErrSerialization       = &Error{"dubbo-serialization", 400, "a serialization other than hessian2 and fastjson"}
	ErrAnswerSerialization = &Error{"dubbo-serialization", 502, "an answer in a serialization other than hessian2 and fastjson"}
	ErrBadInvocation       = &Error{"dubbo-bad-invocation", 400, "a Dubbo call is malformed or nested too deep"}
	ErrBadAnswer           = &Error{"dubbo-bad-answer", 502, "a Dubbo answer is malformed, nested too deep or refers to itself"}
	ErrReplyTooLarge       = &Error{"response-too-large", 502, "a Dubbo answer is too large as text or JSON"}
)

// Refusals to convert an HTTP request into a call.
var (
	ErrNotCall       = &Error{"dubbo-not-a-call", 404, "neither the form of a Dubbo call nor POST /interface/method with JSON"}
	ErrBadForm       = &Error{"dubbo-bad-form", 400, "malformed form of a Dubbo call"}
	ErrBadJSON       = &Error{"dubbo-bad-json", 400, "the JSON of a Dubbo call is malformed or nested too deep"}
	ErrBadName       = &Error{"dubbo-bad-name", 400, "a Dubbo call without an interface or method, or with a malformed name"}
	ErrBadTypes      = &Error{"dubbo-bad-types", 400, "malformed parameter types"}
	ErrBadArgument   = &Error{"dubbo-bad-argument", 400, "an argument does not fit its type"}
	ErrBadAttachment = &Error{"dubbo-bad-attachment", 400, "malformed, reserved or too many attachments"}
	ErrArguments     = &Error{"dubbo-argument-count", 400, "not as many arguments as types, or too many"}
)
