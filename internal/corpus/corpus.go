// Package corpus reads the HTTP/1.1 messages under protocol/http1/testdata: input from
// clients and applications, each with the verdict that Remora must reach. The README
// there describes the format. The tests of the codec, of whole sessions and of real
// processes use the same cases, and so does the comparison with other proxies. It is
// test support; no command may import it.
package corpus

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// The limits that the cases assume.
const (
	HeaderLimit  = 2048 // limits.header
	HeadersLimit = 32   // limits.headers
	MessageLimit = 4096 // limits.message
)

// Verdict is what must happen to a part of a case.
type Verdict uint8

const (
	Accepted   Verdict = iota // a message that is forwarded
	Refused                   // not a message: neither it nor the rest is forwarded
	Incomplete                // the beginning of a message: the rest is awaited, nothing is forwarded
	Ignored                   // bytes behind the last message of a connection
)

// Case is the bytes that one side of a connection sends.
type Case struct {
	Name   string
	Where  string // file:line
	Clause string // of an RFC: "9112 6.3"
	Parts  []Part // at least one

	Method string // of the request that a response answers
	Closes bool   // the server closes after the last byte of the response
}

// Part is one message of a case, or the bytes in place of one. It ends with the last byte
// of the message.
type Part struct {
	Bytes   []byte
	Verdict Verdict

	Method, Target, Host string   // of an accepted request
	Last                 bool     // the connection ends after an accepted request
	Status               int      // of an accepted response, or of the response to a refusal
	Body                 string   // of an accepted message
	Has                  []Field  // headers of an accepted request, as they are forwarded
	Lacks                []string // names of headers that are not forwarded
	Code                 string   // error code of package http1 for a refusal
	Failure              string   // x-remora-error of a refused response
}

// Bytes returns the bytes of all parts.
func (c *Case) Bytes() (all []byte) {
	for _, p := range c.Parts {
		all = append(all, p.Bytes...)
	}
	return all
}

// Of returns the parts with the verdict.
func (c *Case) Of(v Verdict) (found []Part) {
	for _, p := range c.Parts {
		if p.Verdict == v {
			found = append(found, p)
		}
	}
	return found
}

// Open reports whether the connection stays open for another request.
func (c *Case) Open() bool {
	last := &c.Parts[len(c.Parts)-1]
	return last.Verdict == Accepted && !last.Last
}

// Requests reads the cases of all request files in the folder.
func Requests(dir fs.FS) ([]Case, error) { return read(dir, "requests-*.txt", true) }

// Responses reads the cases of all response files in the folder.
func Responses(dir fs.FS) ([]Case, error) { return read(dir, "responses-*.txt", false) }

func read(dir fs.FS, pattern string, requests bool) (all []Case, err error) {
	files, err := fs.Glob(dir, pattern)
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("no file matches %s", pattern)
	}
	r := reader{requests: requests, names: map[string]bool{}}
	for _, name := range files {
		if err := r.file(dir, name); err != nil {
			return nil, err
		}
	}
	return r.cases, nil
}

// reader turns the lines of files into cases.
type reader struct {
	requests bool
	names    map[string]bool
	cases    []Case
}

// block is the lines of one case, before its "each" line is expanded.
type block struct {
	name  string
	where string
	each  []string
	lines []string
}

func (r *reader) file(dir fs.FS, name string) error {
	f, err := dir.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	var blocks []*block
	lines := bufio.NewScanner(f)
	for n := 1; lines.Scan(); n++ {
		line := lines.Text()
		where := fmt.Sprintf("%s:%d", name, n)
		if strings.TrimRight(line, " \t\r") != line || strings.Contains(line, "\t") {
			return fmt.Errorf("%s: blanks that can't be seen: write \\s or \\t", where)
		}
		word, rest, _ := strings.Cut(line, " ")
		switch {
		case line == "" || word == "#":
		case word == "case":
			blocks = append(blocks, &block{name: rest, where: where})
		case len(blocks) == 0:
			return fmt.Errorf("%s: not in a case", where)
		case word == "each":
			blocks[len(blocks)-1].each = strings.Fields(rest)
		default:
			b := blocks[len(blocks)-1]
			b.lines = append(b.lines, line)
		}
	}
	for _, b := range blocks {
		if err := r.expand(b); err != nil {
			return err
		}
	}
	return lines.Err()
}

// expand adds the case of b, or one case for each of its values.
func (r *reader) expand(b *block) error {
	if b.each == nil {
		return r.add(b, b.name, b.lines)
	}
	for _, value := range b.each {
		lines := slices.Clone(b.lines)
		for i := range lines {
			lines[i] = strings.ReplaceAll(lines[i], "{}", value)
		}
		if err := r.add(b, b.name+" "+value, lines); err != nil {
			return err
		}
	}
	return nil
}

func (r *reader) add(b *block, name string, lines []string) error {
	c := Case{Name: name, Where: b.where, Method: "GET"}
	var said []byte
	var err error
	for _, line := range lines {
		if said, err = r.line(&c, said, line); err != nil {
			return fmt.Errorf("%s: %q: %w", b.where, line, err)
		}
	}
	switch {
	case r.names[name]:
		err = errors.New("a second case of this name")
	case c.Clause == "":
		err = errors.New("no clause")
	case len(said) > 0 || len(c.Parts) == 0:
		err = errors.New("bytes without a verdict")
	}
	if err != nil {
		return fmt.Errorf("%s: %s: %w", b.where, name, err)
	}
	r.names[name] = true
	r.cases = append(r.cases, c)
	return nil
}

var clauseForm = regexp.MustCompile(`^[1-9][0-9]{3} [1-9A-Z][0-9.]*$`)

// line parses one line of a case. said is the bytes since the last verdict.
func (r *reader) line(c *Case, said []byte, line string) ([]byte, error) {
	word, rest, _ := strings.Cut(line, " ")
	switch word {
	case "clause":
		if c.Clause = rest; !clauseForm.MatchString(rest) {
			return nil, errors.New("want the number of an RFC and of a section")
		}
		return said, nil
	case "to":
		c.Method = rest
		return said, nil
	case "closes":
		c.Closes = true
		return said, nil
	case "has", "lacks":
		if len(c.Parts) == 0 {
			return nil, errors.New("no message before it")
		}
		return said, c.Parts[len(c.Parts)-1].fact(word, rest)
	case ">":
		text, err := unescape(rest)
		return append(append(said, text...), "\r\n"...), err
	case "+":
		text, err := unescape(rest)
		return append(said, text...), err
	}
	p := Part{Bytes: said}
	err := p.verdict(word, rest, r.requests)
	c.Parts = append(c.Parts, p)
	return nil, err
}

func (p *Part) verdict(word, rest string, request bool) (err error) {
	switch word {
	case "=":
		p.Verdict = Accepted
		return p.accepted(rest, request)
	case "!":
		p.Verdict = Refused
		f := strings.Fields(rest)
		if len(f) < 2 || request && len(f) != 2 || !request && len(f) != 3 {
			return errors.New("want a status and codes")
		}
		p.Failure, p.Code = f[1], f[len(f)-1]
		p.Status, err = strconv.Atoi(f[0])
		return err
	case "?":
		p.Verdict = Incomplete
	case "-":
		p.Verdict = Ignored
	default:
		return errors.New("unknown line")
	}
	return nil
}

// fact parses "has NAME: VALUE" and "lacks NAME" about the request before it.
func (p *Part) fact(word, rest string) error {
	name, value, valued := strings.Cut(rest, ": ")
	switch {
	case p.Verdict != Accepted || valued != (word == "has"):
		return errors.New("want has NAME: VALUE or lacks NAME of an accepted request")
	case valued:
		value, err := unescape(value)
		p.Has = append(p.Has, Field{name, value})
		return err
	}
	p.Lacks = append(p.Lacks, name)
	return nil
}

// accepted parses "METHOD TARGET HOST [last] ["BODY"]" of a request, with - for an empty
// field, and "STATUS ["BODY"]" of a response.
func (p *Part) accepted(rest string, request bool) (err error) {
	if i := strings.Index(rest, ` "`); i >= 0 && strings.HasSuffix(rest[i+2:], `"`) {
		if p.Body, err = unescape(rest[i+2 : len(rest)-1]); err != nil {
			return err
		}
		rest = rest[:i]
	}
	f := strings.Fields(rest)
	if !request {
		p.Status, err = strconv.Atoi(rest)
		return err
	}
	if p.Last = len(f) == 4 && f[3] == "last"; len(f) != 3 && !p.Last {
		return errors.New("want method, target and host")
	}
	for i, to := range []*string{&p.Method, &p.Target, &p.Host} {
		if *to, err = unescape(f[i]); err != nil {
			return err
		}
		if f[i] == "-" {
			*to = ""
		}
	}
	return nil
}

var escapes = regexp.MustCompile(`\\(x[0-9a-f]{2}|\{[0-9]+\*[^}]+\}|.?)`)

// unescape replaces \r, \n, \t, \s (a space), \\, \xHH, and \{N*TEXT}, which repeats the
// unescaped TEXT N times.
func unescape(s string) (string, error) {
	var bad error
	s = escapes.ReplaceAllStringFunc(s, func(e string) string {
		switch e = e[1:]; {
		case e == "r":
			return "\r"
		case e == "n":
			return "\n"
		case e == "t":
			return "\t"
		case e == "s":
			return " "
		case e == `\`:
			return `\`
		case len(e) == 3 && e[0] == 'x':
			b, _ := strconv.ParseUint(e[1:], 16, 8)
			return string([]byte{byte(b)})
		case len(e) > 3 && e[0] == '{':
			count, text, _ := strings.Cut(e[1:len(e)-1], "*")
			n, _ := strconv.Atoi(count)
			text, err := unescape(text)
			bad = errors.Join(bad, err)
			return strings.Repeat(text, n)
		}
		bad = fmt.Errorf("unknown escape \\%s", e)
		return ""
	})
	return s, bad
}
