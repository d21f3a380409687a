package dubbo

import "unicode/utf8"

// Reply is the head of an HTTP response made from a Dubbo response.
type Reply struct {
	Status      int    // HTTP status
	Code        string // for x-remora-error; "" when the method returned
	ContentType string
}

// CodeException is the code of a reply to a call that ended with an application's exception.
const CodeException = "dubbo-exception"

// The kinds of bodies with StatusOK; the first value of the body
// (org.apache.dubbo.rpc.protocol.dubbo.DubboCodec).
const (
	kindException                = 0
	kindValue                    = 1
	kindNull                     = 2
	kindExceptionWithAttachments = 3
	kindValueWithAttachments     = 4
	kindNullWithAttachments      = 5
)

// problem says why a call has no result: an exception, or a status.
type problem struct {
	class   []byte // of the exception; empty for a status
	message []byte // UTF-8
}

// AppendReply appends the body of the HTTP response for the Dubbo response f. More than max bytes are ErrResponseTooLarge;
// after an error dst is as it was.
//
// For a call that came as JSON the result is JSON, and a problem is an object with error,
// message and, for an exception, class. For a call that came as a form (bare) a string is text
// and any other result is JSON: null, numbers and booleans look as in Java. A problem is a
// line of text.
//
// f is decoded with its own serialization: that of the response may differ from the call's.
func AppendReply(dst []byte, f *Frame, bare bool, max int) ([]byte, Reply, error) {
	reply := Reply{Status: f.Status.HTTP(), Code: f.Status.Code(), ContentType: "application/json"}
	if bare {
		reply.ContentType = "text/plain; charset=utf-8"
	}
	if f.Status != StatusOK {
		return finishReply(dst, appendProblem(dst, reply.Code, problem{message: readMessage(f)}, bare, max), reply, max)
	}
	var out []byte
	var thrown *problem
	var err error
	switch f.Serialization {
	case Fastjson:
		out, thrown, err = appendFastjsonResult(dst, f.Body, bare, max)
	case Hessian2:
		out, thrown, err = appendHessianResult(dst, f.Body, bare, max)
	default:
		err = ErrResponseSerialization
	}
	if err != nil {
		return dst, Reply{}, err
	}
	if thrown != nil {
		reply.Status, reply.Code = 500, CodeException
		out = appendProblem(dst, CodeException, *thrown, bare, max)
	}
	return finishReply(dst, out, reply, max)
}

// finishReply returns out, which begins with dst, unless it has more than max bytes behind that.
func finishReply(dst, out []byte, reply Reply, max int) ([]byte, Reply, error) {
	if len(out)-len(dst) > max {
		return dst, Reply{}, ErrResponseTooLarge
	}
	return out, reply, nil
}

// appendProblem appends p. It may leave out the end of a text that is longer than max bytes by itself.
func appendProblem(dst []byte, code string, p problem, bare bool, max int) []byte {
	if bare {
		dst = append(dst, p.class...)
		if len(p.class) > 0 && len(p.message) > 0 {
			dst = append(dst, ": "...)
		}
		if len(p.class)+len(p.message) == 0 {
			dst = append(dst, code...)
		}
		return append(dst, p.message...)
	}
	limit := len(dst) + max
	dst = append(dst, `{"error":"`...)
	dst = append(dst, code...)
	if len(p.class) > 0 {
		dst = append(dst, `","class":"`...)
		dst = appendEscapedUpTo(dst, p.class, limit)
	}
	dst = append(dst, `","message":"`...)
	dst = appendEscapedUpTo(dst, p.message, limit)
	return append(dst, `"}`...)
}

// readMessage returns the message of a response that is not OK, or nil if it can't be read.
func readMessage(f *Frame) []byte {
	switch f.Serialization {
	case Fastjson:
		lines := lineReader{b: f.Body}
		if value, ok := oneJSON(lines.next()); ok && !lines.bad && utf8.Valid(value) {
			return jsonText(value)
		}
	case Hessian2:
		r := hessianReader{b: f.Body}
		if text, ok := r.text(r.next()); ok {
			return text
		}
	}
	return nil
}

// AppendFailure appends a response with a status other than OK and a message made of code and
// text. If the serialization is unknown, the message is in hessian2, which every peer knows.
func AppendFailure(dst []byte, serialization byte, id int64, s Status, code, text string) []byte {
	if serialization != Fastjson {
		serialization = Hessian2
	}
	start := len(dst)
	dst = AppendHeader(dst, &Frame{Serialization: serialization, Status: s, ID: id})
	var room [256]byte
	message := append(room[:0], code...)
	message = append(message, ": "...)
	message = append(message, text...)
	if serialization == Hessian2 {
		dst = appendHessianString(dst, message)
	} else {
		dst = appendJSONString(dst, message)
		dst = append(dst, '\n')
	}
	return endFrame(dst, start)
}
