package dubbo

// Error says why a message is refused. All instances are variables of this package, so they
// can be compared and cost nothing to return.
type Error struct {
	Code   string // stable, in kebab-case: for x-remora-error, logs and metrics
	Status int    // HTTP status of the response to a request that is refused with this error
	Text   string // one line for people
}

// Error returns the text, prefixed with the package name.
func (e *Error) Error() string { return "dubbo: " + e.Text }

// Errors of the frame decoder. After any of them the connection must be closed.
var (
	ErrMagic         = &Error{"dubbo-magic", 400, "the peer does not speak Dubbo"}
	ErrFrameTooLarge = &Error{"message-too-large", 413, "a frame's body is negative or too long"}
)

// Errors of the body decoders.
var (
	ErrSerialization         = &Error{"dubbo-serialization", 400, "a serialization other than hessian2 and fastjson"}
	ErrResponseSerialization = &Error{"dubbo-serialization", 502, "a response in a serialization other than hessian2 and fastjson"}
	ErrBadInvocation         = &Error{"dubbo-bad-invocation", 400, "a Dubbo call is malformed or nested too deep"}
	ErrBadResponse           = &Error{"dubbo-bad-answer", 502, "a Dubbo response is malformed or nested too deep"}
	ErrResponseTooLarge      = &Error{"response-too-large", 502, "a Dubbo response is too large as text or JSON"}
)

// Errors of the conversion of an HTTP request into a call.
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
