package strictness

import (
	"bufio"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"

	"github.com/remora-proxy/remora/internal/corpus"
)

// An echo says what a server saw of a request, in pairs KEY=HEX with white space between
// them. It is the body of a response, or the value of X-Echo in one to HEAD. The keys are
// method, target, body, one header for each "NAME: VALUE", cgi for one whose name is that of
// a variable of CGI, and headers for a block of them. A server that responds before it reads the body says early.
const earlyEcho = "early"

// seen is what a server saw of a request.
type seen struct {
	method, target, body string
	headers              map[string]string // values by names in lower case, joined
	early                bool
}

// parseEcho parses the response to a request with the method.
func parseEcho(m *corpus.Message, method string) (*seen, error) {
	text := m.Body
	if method == "HEAD" {
		text = m.Find("X-Echo")
	}
	s := &seen{headers: map[string]string{}, early: strings.TrimSpace(text) == earlyEcho}
	if s.early {
		return s, nil
	}
	for _, pair := range strings.Fields(text) {
		key, value, _ := strings.Cut(pair, "=")
		b, err := hex.DecodeString(value)
		if err != nil {
			return nil, errors.New("no echo")
		}
		switch key {
		case "method":
			s.method = string(b)
		case "target":
			s.target = string(b)
		case "body":
			s.body = string(b)
		case "header":
			s.add(string(b))
		case "cgi":
			name, value, _ := strings.Cut(string(b), ":")
			s.add(strings.ReplaceAll(name, "_", "-") + ":" + value)
		case "headers":
			for line := range strings.SplitSeq(strings.TrimRight(string(b), "\r\n"), "\r\n") {
				s.add(line)
			}
		}
	}
	if s.method == "" {
		return nil, errors.New("no echo")
	}
	return s, nil
}

func (s *seen) add(line string) {
	name, value, _ := strings.Cut(line, ":")
	addField(s.headers, name, value)
}

// addField adds a header to values by names in lower case. Values of one name are joined.
func addField(to map[string]string, name, value string) {
	name = strings.ToLower(name)
	value = strings.Trim(value, " \t")
	if before, found := to[name]; found {
		value = before + "," + value
	}
	to[name] = value
}

// fieldsByName returns the headers of a message in the form of an echo.
func fieldsByName(m *corpus.Message) map[string]string {
	all := map[string]string{}
	for _, f := range m.Fields {
		addField(all, f.Name, f.Value)
	}
	return all
}

// formEcho is the echo of a request. key is the key of its headers.
func formEcho(method, target string, body []byte, key string, headers http.Header) string {
	var b strings.Builder
	fmt.Fprintf(&b, "method=%x\ntarget=%x\nbody=%x\n", method, target, body)
	for name, values := range headers {
		for _, value := range values {
			fmt.Fprintf(&b, "%s=%x\n", key, name+": "+value)
		}
	}
	return b.String()
}

// echoHandler is the application of net/http.
func echoHandler(w http.ResponseWriter, r *http.Request) {
	echo := earlyEcho
	if !strings.HasPrefix(r.RequestURI, "/early") {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		headers := r.Header.Clone()
		headers.Set("Host", r.Host)
		echo = formEcho(r.Method, r.RequestURI, body, "header", headers)
	}
	if r.Method == http.MethodHead {
		w.Header().Set("X-Echo", strings.ReplaceAll(echo, "\n", " "))
	}
	w.Header().Set("Content-Length", strconv.Itoa(len(echo)))
	_, _ = io.WriteString(w, echo)
}

// serveSCGI is the application of servers that have none: one request on each connection.
func serveSCGI(nc net.Conn) {
	if echo, err := echoSCGI(bufio.NewReader(nc)); err == nil {
		_, _ = io.WriteString(nc, echo)
	}
}

// echoSCGI reads a request of SCGI and returns the response.
func echoSCGI(r *bufio.Reader) (string, error) {
	length, err := r.ReadString(':')
	if err != nil {
		return "", err
	}
	n, err := strconv.Atoi(strings.TrimSuffix(length, ":"))
	if err != nil {
		return "", err
	}
	block := make([]byte, n+1) // with the comma behind it
	if _, err := io.ReadFull(r, block); err != nil {
		return "", err
	}
	names := map[string]string{}
	headers := http.Header{}
	words := strings.Split(string(block[:n]), "\x00")
	for i := 0; i+1 < len(words); i += 2 {
		names[words[i]] = words[i+1]
		if name, found := strings.CutPrefix(words[i], "HTTP_"); found {
			headers.Add(name, words[i+1])
		}
	}
	size, _ := strconv.Atoi(names["CONTENT_LENGTH"])
	body := make([]byte, size)
	if _, err := io.ReadFull(r, body); err != nil {
		return "", err
	}
	method := names["REQUEST_METHOD"]
	echo := formEcho(method, names["REQUEST_URI"], body, "cgi", headers)
	extra := ""
	if method == http.MethodHead {
		extra = "X-Echo: " + strings.ReplaceAll(echo, "\n", " ") + "\r\n"
	}
	return fmt.Sprintf("Status: 200 OK\r\nContent-Type: text/plain\r\n%sContent-Length: %d\r\n\r\n%s", extra, len(echo), echo), nil
}
