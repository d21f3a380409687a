package corpus

import (
	"fmt"
	"io"
	"slices"
)

// Answer is what a client gets for a request.
type Answer struct {
	Method string // of the request
	Status int
	Code   string // x-remora-error; "": it is the application's
	Body   string // of the application's answer
}

// Numbered is the body of a recording application's answer to the n-th request of
// a case.
func Numbered(n int) string { return fmt.Sprintf("answer %d", n) }

// Answers are those to a case of requests, in their order. The last may be a
// refusal. There are no tunnels.
func (c *Case) Answers() (due []Answer) {
	for _, p := range c.Parts {
		switch {
		case p.Verdict == Accepted && p.Method == "CONNECT":
			return append(due, Answer{Status: 501, Code: "not-supported"})
		case p.Verdict == Accepted:
			due = append(due, Answer{Method: p.Method, Status: 200, Body: Numbered(len(due) + 1)})
		case p.Verdict == Refused:
			due = append(due, Answer{Status: p.Status, Code: p.Code})
		}
	}
	return due
}

// Answer is what the caller gets when its application says a case.
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

// ParseAnswers parses what a client heard that waits for due; it leaves interim
// responses out. With the last bytes incomplete it returns io.ErrUnexpectedEOF
// and what is before them.
func ParseAnswers(heard []byte, due []Answer) (answers []Message, err error) {
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

// CheckAnswers wants what a client heard to be what is due and nothing else.
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

// Forwarded are the requests of a case that the application gets.
func (c *Case) Forwarded() (forwarded []Message) {
	for _, p := range c.Of(Accepted) {
		if p.Method != "CONNECT" {
			forwarded = append(forwarded, Message{Method: p.Method, Target: p.Target, Host: p.Host, Body: p.Body})
		}
	}
	return forwarded
}

// Record is what an application got.
type Record struct {
	Requests []Message // in the order in which they were complete
	Wrong    error     // bytes that are no request
	Begun    int       // connections on which one was begun and not completed
	Cut      int       // of these, the ones that have ended
}

// Check wants the record to be the requests and nothing else.
func (r *Record) Check(want []Message) error {
	if r.Wrong != nil || r.Begun != 0 || !slices.EqualFunc(r.Requests, want, sameRequest) {
		return fmt.Errorf("the application got %+v, %d incomplete, %v; want %+v", r.Requests, r.Begun, r.Wrong, want)
	}
	return nil
}

func sameRequest(a, b Message) bool {
	return a.Method == b.Method && a.Target == b.Target && a.Host == b.Host && a.Body == b.Body
}

// Recorder reads what one connection brings to an application.
type Recorder struct {
	to   *Record
	held []byte
}

// NewRecorder keeps what a connection brings in a record.
func NewRecorder(to *Record) *Recorder { return &Recorder{to: to} }

// Feed takes what came next, and returns the requests that it completes. After
// what is no request it takes no more.
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
