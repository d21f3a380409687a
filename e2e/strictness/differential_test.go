package strictness

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/remora-proxy/remora/internal/corpus"
	"github.com/remora-proxy/remora/proxy/downstream"
)

// scripts/differential.sh sets it.
var differential = flag.String("differential", "", "send the corpus through Remora to other servers: short for those of Debian's packages, whole for all")

// differentialDir has the cases that are about pairs of servers.
const differentialDir = "testdata/differential"

// TestDifferential sends the requests of the corpus through Remora, one hop and two, to
// other servers, each of which responds with what it saw. It fails when a server saw
// something else than Remora meant and testdata/differential/differences.txt does not say
// why, or when requests and responses are not one for one.
func TestDifferential(t *testing.T) {
	if *differential == "" {
		t.Skip("needs other servers: see scripts/differential.sh")
	}
	why, err := readExplanations(differentialDir + "/differences.txt")
	if err != nil {
		t.Fatal(err)
	}
	cases := differentialCases(t)
	var runs []*differentialRun
	t.Run("to", func(t *testing.T) {
		for _, b := range backends() {
			if *differential == "short" && slices.Contains([]string{venvPython, javaClasses, newestPeers}, b.needs) {
				continue
			}
			r := &differentialRun{name: b.name}
			runs = append(runs, r)
			t.Run(b.name, func(t *testing.T) {
				t.Parallel()
				r.run(t, &b, cases)
			})
		}
	})
	var differences []*difference
	for _, r := range runs {
		differences = append(differences, r.differences(cases)...)
	}
	for _, d := range why.explain(differences) {
		t.Errorf("not explained: %s | %s | %s", d.proxy.name, d.verdict, d.c.Name)
	}
	if *differential == "whole" {
		for _, r := range why.unused() {
			t.Errorf("explains nothing: %s | %s | %s", r.proxy, r.verdict, r.cases)
		}
	}
	t.Logf("%d cases, %d servers, 2 ways, %d explained differences", len(cases), len(runs), len(differences))
}

func differentialCases(t *testing.T) []corpus.Case {
	cases, err := corpus.Requests(os.DirFS(corpusDir))
	more, err2 := corpus.Requests(os.DirFS(differentialDir))
	if err := errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(append(cases, more...), func(c corpus.Case) bool { return downstream.BeginsHTTP2(c.Bytes()) })
}

// differentialRun is one server, and what it makes of the cases.
type differentialRun struct {
	name     string
	tap      *tap
	canaries int
	verdicts []map[string]bool // by case
}

// run sends all cases over both ways.
func (r *differentialRun) run(t *testing.T, b *backend, cases []corpus.Case) {
	tap, err := startTap(b.start(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(tap.close)
	r.tap = tap
	r.verdicts = make([]map[string]bool, len(cases))
	for way, addr := range strictSidecars(t, tap.addr()) {
		for i := range cases {
			c := &cases[i]
			if r.verdicts[i] == nil {
				r.verdicts[i] = map[string]bool{}
			}
			err := r.tell(addr, c, r.verdicts[i])
			for again := 0; errors.Is(err, errStreamed) && again < 20; again++ {
				err = r.tell(addr, c, r.verdicts[i])
			}
			if err != nil {
				t.Errorf("%s: %s: %s: %v\n%.300q", way, c.Where, c.Name, err, c.Bytes())
			}
		}
	}
	if got := tap.take(); len(got.surplus) > 0 {
		t.Errorf("behind the last case, the server sent %q", got.surplus)
	}
}

// differences lists what the server saw otherwise than Remora meant it.
func (r *differentialRun) differences(cases []corpus.Case) (all []*difference) {
	for i, verdicts := range r.verdicts {
		for verdict := range verdicts {
			all = append(all, &difference{proxy: &runningProxy{name: r.name}, c: &cases[i], verdict: verdict})
		}
	}
	return all
}

// errStreamed means that a server took longer than race.StreamAfter to end a response without a length, as it may on a busy
// machine. Such a response is passed on as a stream, the last response of its connection.
var errStreamed = errors.New("a response without a length became a stream")

// tell sends a case, and requests behind it. It adds what the server made of the case to
// verdicts, and returns what no server may cause.
func (r *differentialRun) tell(addr string, c *corpus.Case, verdicts map[string]bool) error {
	client, err := dialStrict(addr)
	if err != nil {
		return err
	}
	defer client.Close()
	if _, err := client.Write(c.Bytes()); err != nil {
		return err
	}
	sent := c.Forwarded()
	client.due = c.Answers()
	waits := len(c.Of(corpus.Incomplete)) > 0
	long := refusedFor(c, "message-too-large")
	if long {
		sent, client.due = wholeRequest(c)
		waits = true
	}
	answers, err := client.answers(!c.Open() && !waits)
	if waits {
		_ = client.CloseWrite()
		answers, err = client.answers(true)
	}
	if err != nil && !long {
		r.tap.take()
		return err
	}
	var wrong error
	if c.Open() && !client.ended() {
		wrong = r.canary(client, &sent)
	}
	if fresh, err := dialStrict(addr); err != nil {
		wrong = errors.Join(wrong, err)
	} else {
		wrong = errors.Join(wrong, r.canary(fresh, &sent))
		fresh.Close()
	}
	got := r.tap.take()
	if wrong = errors.Join(wrong, got.check(sent)); wrong != nil {
		return wrong
	}
	if slices.ContainsFunc(got.toParts, func(status int) bool { return status < 300 }) {
		verdicts["answered a part"] = true
	}
	if !long {
		wrong = checkFacts(c, got.requests)
	}
	return errors.Join(wrong, compare(client.due, answers, got.requests, verdicts))
}

// wholeRequest returns the request of a case past limits.message, which passes as it
// arrives, and its response; none if the case is incomplete or malformed.
func wholeRequest(c *corpus.Case) (sent []corpus.Message, due []corpus.Answer) {
	m, _, err := corpus.ParseRequest(c.Bytes())
	if err != nil {
		return nil, nil
	}
	return []corpus.Message{m}, []corpus.Answer{{Method: m.Method, Status: 200}}
}

// answers reads until all due responses have arrived, or to the end.
func (c *strictClient) answers(toEnd bool) (answers []corpus.Message, err error) {
	b := make([]byte, 16<<10)
	for {
		answers, err = corpus.ParseAnswers(c.heard, c.due)
		if !toEnd && len(answers) >= len(c.due) || err != nil && err != io.ErrUnexpectedEOF {
			break
		}
		n, readErr := c.Read(b)
		c.heard = append(c.heard, b[:n]...)
		if readErr == io.EOF {
			answers, err = corpus.ParseAnswers(c.heard, c.due)
			break
		}
		if readErr != nil {
			return answers, fmt.Errorf("%w, having received %q", readErr, c.heard)
		}
	}
	if err == nil && len(answers) != len(c.due) {
		if n := len(answers); n > 0 && answers[n-1].Find("Transfer-Encoding") == "chunked" && answers[n-1].Find("Connection") == "close" {
			return answers, errStreamed
		}
		err = fmt.Errorf("%d answers, want %d: %q", len(answers), len(c.due), c.heard)
	}
	return answers, err
}

// canary sends a GET that no other request is like, and expects the echo of exactly that.
func (r *differentialRun) canary(client *strictClient, sent *[]corpus.Message) error {
	r.canaries++
	m := corpus.Message{Method: "GET", Target: fmt.Sprintf("/canary/%d", r.canaries), Host: "next"}
	*sent = append(*sent, m)
	fmt.Fprintf(client, "GET %s HTTP/1.1\r\nHost: next\r\n\r\n", m.Target)
	client.due = append(client.due, corpus.Answer{Method: "GET", Status: 200})
	answers, err := client.answers(false)
	client.due = client.due[:len(client.due)-1]
	if err != nil {
		return fmt.Errorf("%s: %w", m.Target, err)
	}
	last := &answers[len(answers)-1]
	if s, err := parseEcho(last, "GET"); err != nil || s.target != m.Target || s.method != "GET" || s.body != "" {
		return fmt.Errorf("%s got another answer: %v, %+v", m.Target, err, last)
	}
	return nil
}

// check returns an error unless the server got exactly these requests, and has sent one
// response to each. The sidecar may repeat a GET whose connection the server has closed.
func (got *tapped) check(sent []corpus.Message) error {
	for i := len(got.requests) - 1; i > 0 && len(got.requests) > len(sent); i-- {
		if m, id := &got.requests[i], "X-Request-Id"; m.Method == "GET" && m.Find(id) == got.requests[i-1].Find(id) && got.unanswered > 0 {
			got.unanswered--
			got.requests = slices.Delete(got.requests, i, i+1)
		}
	}
	r := corpus.Record{Wrong: got.wrong, Requests: got.requests}
	err := r.Check(sent)
	if len(got.surplus) > 0 || got.responses+got.unanswered != len(got.requests) {
		err = errors.Join(err, fmt.Errorf("%d requests, %d responses, %d unanswered, surplus %q",
			len(got.requests), got.responses, got.unanswered, got.surplus))
	}
	return err
}

// checkFacts checks what a case says about headers of forwarded requests.
func checkFacts(c *corpus.Case, requests []corpus.Message) (err error) {
	n := 0
	for _, p := range c.Of(corpus.Accepted) {
		if p.Method == "CONNECT" {
			continue
		}
		fields := fieldsByName(&requests[n])
		n++
		for _, f := range p.Has {
			if value, found := fields[strings.ToLower(f.Name)]; !found || value != f.Value {
				err = errors.Join(err, fmt.Errorf("%s is forwarded as %q, want %q", f.Name, value, f.Value))
			}
		}
		for _, name := range p.Lacks {
			if value, found := fields[strings.ToLower(name)]; found {
				err = errors.Join(err, fmt.Errorf("%s: %s is forwarded", name, value))
			}
		}
	}
	return err
}

// compare adds to verdicts what the server made of each forwarded request, unless it saw
// what was meant. The sidecar's own responses must be those of the case.
func compare(due []corpus.Answer, answers []corpus.Message, requests []corpus.Message, verdicts map[string]bool) error {
	for i := range min(len(answers), len(due)) {
		a := &answers[i]
		code := a.Find("x-remora-error")
		switch want := due[i]; {
		case want.Code != "":
			if a.Status != want.Status || code != want.Code {
				return fmt.Errorf("answer %d: %+v, want %+v", i+1, a, want)
			}
		case code != "":
			verdicts["unanswered: "+code] = true
		default:
			if v := verdictOf(&requests[i], a); v != "" {
				verdicts[v] = true
			}
		}
	}
	return nil
}

// verdictOf names how what the server saw differs from a request, "" if it does not.
func verdictOf(m, answer *corpus.Message) string {
	s, err := parseEcho(answer, m.Method)
	switch {
	case err != nil:
		return fmt.Sprintf("answered itself: %d", answer.Status)
	case s.early:
		return ""
	case s.method != m.Method:
		return "another method"
	case s.target != m.Target:
		return "another target"
	case s.body != m.Body:
		return "another body"
	}
	fields := fieldsByName(m)
	var words []string
	for name, value := range fields {
		if !framing[name] && s.headers[name] != value {
			words = append(words, "another "+name)
		}
	}
	for name := range s.headers {
		if _, found := fields[name]; !found && !framing[name] {
			words = append(words, "added "+name)
		}
	}
	slices.Sort(words)
	return strings.Join(words, ", ")
}

// framing are headers that an application may not get, or in another form: it gets the
// body.
var framing = map[string]bool{"content-length": true, "transfer-encoding": true, "connection": true, "content-type": true}
