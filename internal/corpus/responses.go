package corpus

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

// Answer is the response that a client gets to a request.
type Answer struct {
	Method string // of the request
	Status int
	Code   string // x-remora-error; "" means that the application responded
	Body   string // of the application's response
}

// Numbered returns the body of a recording application's response to the n-th request
// of a case.
func Numbered(n int) string { return fmt.Sprintf("answer %d", n) }

// Answers returns the responses to a case of requests, in order. The last one may be a
// refusal. A CONNECT is refused: there are no tunnels.
func (c *Case) Answers() (due []Answer) {
	for _, p := range c.Parts {
		switch {
		case p.Verdict == Accepted && p.Method == "CONNECT":
			return append(due, Answer{Status: 501, Code: "not-supported"})
		case p.Verdict == Accepted:
			due = append(due, Answer{Method: p.Method, Status: 200, Body: Numbered(len(due) + 1)})
		case p.Verdict == Refused:
			method, _, _ := strings.Cut(string(p.Bytes), " ")
			due = append(due, Answer{Method: method, Status: p.Status, Code: p.Code})
		}
	}
	return due
}

// Answer returns the response that the client gets when its application sends the case.
func (c *Case) Answer() Answer {
	for _, p := range c.Parts {
		switch {
		case p.Verdict == Accepted && p.Status >= 200:
			return Answer{Method: c.Method, Status: p.Status, Body: p.Body}
		case p.Verdict == Refused:
			return Answer{Method: c.Method, Status: p.Status, Code: p.Failure}
		}
	}
	return Answer{Method: c.Method, Status: 504, Code: "deadline"}
}

// ParseAnswers parses the bytes that a client received while it waited for due. It leaves
// out interim responses. If the last response is incomplete, it returns the ones before
// and io.ErrUnexpectedEOF.
func ParseAnswers(heard []byte, due []Answer) (answers []Message, err error) {
	if len(due) > 0 && due[0].endsOtherProtocol(heard) {
		return []Message{{Status: due[0].Status, Fields: []Field{{"x-remora-error", due[0].Code}}, Close: true}}, nil
	}
	for len(heard) > 0 {
		method := ""
		if len(answers) < len(due) {
			method = due[len(answers)].Method
		}
		m, n, err := ParseResponse(heard, method)
		if err == io.ErrUnexpectedEOF {
			return answers, err
		}
		if err != nil {
			return answers, fmt.Errorf("answer %d: %w: %q", len(answers)+1, err, heard)
		}
		if heard = heard[n:]; m.Status >= 200 {
			answers = append(answers, m)
		}
	}
	return answers, nil
}

// otherProtocols has, by the refusal of the HTTP codec, what a client of HTTP/2 or TLS gets in its
// place: the frames SETTINGS and GOAWAY, or a fatal alert.
var otherProtocols = map[string]string{
	"bad-version":      "\x00\x00\x00\x04\x00\x00\x00\x00\x00\x00\x00",
	"bad-request-line": "\x15\x03\x03\x00\x02\x02\x28",
}

// endsOtherProtocol reports whether heard is what a client of another protocol gets for a.
func (a *Answer) endsOtherProtocol(heard []byte) bool {
	start := otherProtocols[a.Code]
	return start != "" && strings.HasPrefix(string(heard), start)
}

// CheckAnswers returns an error unless a client received exactly the responses that are
// due.
func CheckAnswers(heard []byte, due []Answer) error {
	answers, err := ParseAnswers(heard, due)
	if err != nil {
		return err
	}
	if len(answers) != len(due) {
		return fmt.Errorf("%d answers, want %d: %q", len(answers), len(due), heard)
	}
	for i, got := range answers {
		want := due[i]
		if want.Method == "HEAD" {
			want.Body = ""
		}
		if got.Status != want.Status || got.Find("x-remora-error") != want.Code || want.Code == "" && got.Body != want.Body {
			return fmt.Errorf("answer %d: %+v, want %+v", i+1, got, want)
		}
	}
	return nil
}

// Forwarded returns the requests of a case that the application gets.
func (c *Case) Forwarded() (forwarded []Message) {
	for _, p := range c.Of(Accepted) {
		if p.Method != "CONNECT" {
			forwarded = append(forwarded, Message{Method: p.Method, Target: p.Target, Host: p.Host, Body: p.Body})
		}
	}
	return forwarded
}

// Record is what an application received.
type Record struct {
	Requests []Message // in the order in which they were completed
	Wrong    error     // why bytes are no request
	Begun    int       // connections with an incomplete request
	Cut      int       // those of Begun that have ended
}

// Check returns an error unless the record is exactly these requests.
func (r *Record) Check(want []Message) error {
	if r.Wrong != nil || r.Begun != 0 || !slices.EqualFunc(r.Requests, want, sameRequest) {
		return fmt.Errorf("the application got %+v, %d incomplete, %v; want %+v", r.Requests, r.Begun, r.Wrong, want)
	}
	return nil
}

func sameRequest(a, b Message) bool {
	return a.Method == b.Method && a.Target == b.Target && a.Host == b.Host && a.Body == b.Body
}

// Recorder reads the requests on one connection to an application.
type Recorder struct {
	to   *Record
	held []byte
}

// NewRecorder returns a Recorder that adds the requests of a connection to a record.
func NewRecorder(to *Record) *Recorder { return &Recorder{to: to} }

// Feed takes the next bytes and returns the requests that they complete. After bytes that
// are no request, it ignores the rest.
func (r *Recorder) Feed(b []byte) (complete []Message) {
	if r.to.Wrong != nil {
		return nil
	}
	if len(r.held) > 0 {
		r.to.Begun--
	}
	r.held = append(r.held, b...)
	for len(r.held) > 0 {
		m, n, err := ParseRequest(r.held)
		if err == io.ErrUnexpectedEOF {
			r.to.Begun++
			break
		}
		if err != nil {
			r.to.Wrong = fmt.Errorf("%w in %q", err, r.held)
			return complete
		}
		r.held = r.held[n:]
		r.to.Requests = append(r.to.Requests, m)
		complete = append(complete, m)
	}
	return complete
}
