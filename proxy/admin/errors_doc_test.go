package admin

import (
	"fmt"
	"go/ast"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/remora-proxy/remora/internal/docgen"
	"github.com/remora-proxy/remora/protocol/dubbo"
	"github.com/remora-proxy/remora/protocol/link"
	"github.com/remora-proxy/remora/proxy/fault"
)

const errorsPage = "../../docs/errors.md"

//go:generate go test -run ^TestErrorsPage$ . -update

// codeSources are the files that declare codes, by table of docs/errors.md. The files of
// a table together must declare at least one.
var codeSources = []struct{ table, files string }{
	{"fault", "../fault/*.go"},
	{"fault", "../stream/*.go"},
	{"http1", "../../protocol/http1/*.go"},
	{"dubbo", "../../protocol/dubbo/*.go"},
	{"link", "../../protocol/link/*.go"},
	{"tls", "../certs/*.go"},
	{"tls", "../reactor/*.go"},
	{"reload", "../../sidecar/*.go"},
	{"source", "../../registry/*.go"},
}

// codeNotes are the last cells of codes whose definition has no comment for operators.
var codeNotes = map[string]string{
	"dubbo-exception":           "20: the method threw an exception. The response has its class and message; no other endpoint is asked.",
	"dubbo-serialization-error": "25: the result is longer than its `payload` allows. A repetition gives the same.",
	"dubbo-client-timeout":      "30: the call took too long.",
	"dubbo-server-timeout":      "31: the call took too long.",
	"dubbo-channel-inactive":    "35: the connection to it has closed.",
	"dubbo-bad-request":         "40: it does not understand the call: types, version or serialization.",
	"dubbo-bad-response":        "50: it could not write its response.",
	"dubbo-service-not-found":   "60: no such interface, version or group.",
	"dubbo-service-error":       "70: error of the service.",
	"dubbo-server-error":        "80: error of the server.",
	"dubbo-client-error":        "90: error of the client.",
	"dubbo-pool-exhausted":      "100: no free thread. Callers get `pool-exhausted`.",
	"dubbo-unknown-status":      "A status that Dubbo does not define.",

	"overload":           "`overloaded`",
	"no_slot":            "The response of the first attempt.",
	"draining":           "Another endpoint, free; else `draining`.",
	"upstream_connect":   "Another endpoint, free; else `upstream-connect`.",
	"no_service":         "`no-route`",
	"rate_limited":       "`rate-limited`",
	"exhausted":          "Another endpoint, free while it has room, else for a token; else `pool-exhausted`.",
	"deadline_passed":    "`deadline`",
	"too_large":          "`message-too-large`",
	"malformed":          "`bad-request`",
	"not_allowed":        "`not-allowed`",
	"connection_login":   "`connection-login`",
	"upstream_reset":     "`upstream-reset`",
	"upstream_malformed": "`upstream-malformed`",
	"response_too_large": "`response-too-large`",
	"upstream_timeout":   "`deadline`",

	"tls_no_certificate":  "It showed no certificate: check its `tls.cert` and `tls.key`.",
	"tls_expired":         "Its certificate has expired or is not yet valid: check its rotation, and the clocks.",
	"tls_unknown_ca":      "Its certificate is signed by none of `tls.ca`: check who signs there.",
	"tls_wrong_peer":      "None of its names is in `tls.peers`, or the one that was asked for: the log has its names.",
	"tls_revoked":         "Its certificate, or an authority of it, is on a list of `tls.crl`: issue it a new one, if it may have one.",
	"tls_bad_certificate": "Its certificate is wrong in another way: check its usages, client and server.",
	"tls_plaintext":       "It does not speak TLS: check its `tls` and `insecure`.",
	"tls_timeout":         "It did not finish the handshake: check `connect_timeout` and its CPU.",
	"tls_silent":          "It sent no whole ClientHello, and newer connections needed its place: find out who connects and says nothing.",
	"tls_busy":            "512 handshakes were in progress. It got none, or gave way to a newer one while it was silent: find out who connects so often.",
	"tls_refused":         "It refused us: check its log.",
	"tls_protocol":        "It offers other application protocols (ALPN), such as only `h2`: here is HTTP/1.1.",
	"tls_version":         "It speaks only other versions of TLS: check `tls.min_version`; links speak 1.3.",
	"tls_failed":          "It closed the connection, or something else failed: the log has the `error`.",
	"tls_crl_outdated":    "No peer: a list of `tls.crl` is past its next update. It stays in use; check who delivers new ones.",
	"tls_reload":          "No peer: our own changed files are invalid, and the old ones stay in use: the log names them.",
}

// code is a row of docs/errors.md, before it is formatted for its table.
type code struct{ table, code, status, text, note string }

// row returns the line of a code.
func (c code) row() docgen.Row {
	name := "`" + c.code + "`"
	r := docgen.Row{Key: c.table + "." + c.code}
	switch c.table {
	case "http1", "dubbo":
		r.Cells = []string{name, c.status, c.text}
	case "link":
		r.Cells = []string{name, c.text}
	case "fault":
		status, _ := strconv.Atoi(c.status)
		called := &fault.Failure{Code: c.code, Status: status}
		r.Cells = []string{name, c.status, called.GRPC().String(), c.note}
	case "status", "reason":
		r.Cells = []string{name, c.status, c.note}
	case "tls", "reload", "source":
		r.Cells = []string{name, c.note}
	}
	return r
}

// TestErrorsPage: the tables of docs/errors.md have every code that a caller, another
// sidecar, a log or a metric may show. With -update it writes the tables.
func TestErrorsPage(t *testing.T) {
	codes := declaredCodes(t)
	for i := range 256 {
		if s := dubbo.Status(i); s.Code() != "" && (i == 0 || s.Code() != "dubbo-unknown-status") {
			codes = append(codes, code{"status", s.Code(), fmt.Sprint(s.HTTP()), "", codeNotes[s.Code()]})
		}
		if name := link.Reason(i).String(); name != "unknown" {
			codes = append(codes, code{"reason", name, fmt.Sprint(i), "", codeNotes[name]})
		}
	}
	rows, known := []docgen.Row{}, map[string]bool{}
	for _, c := range codes {
		rows = append(rows, c.row())
		known[c.code] = true
		if cells := rows[len(rows)-1].Cells; slices.Contains(cells, "") {
			t.Errorf("a cell is empty: %q; write a comment at the definition, or a line in codeNotes", cells)
		}
	}
	for name := range codeNotes {
		if !known[name] {
			t.Errorf("codeNotes has %s, which is not a code", name)
		}
	}
	docgen.Check(t, errorsPage, rows, *update)
}

// declaredCodes returns the codes in codeSources, in their order.
func declaredCodes(t *testing.T) (codes []code) {
	t.Helper()
	found := map[string]int{}
	for _, source := range codeSources {
		files, err := filepath.Glob(source.files)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			for _, c := range codesIn(docgen.Parse(t, file)) {
				c.table = source.table
				if c.table == "dubbo" && c.text == "" {
					c.table = "status" // a constant: the HTTP status for a status of the provider
				}
				if source.table == "http1" && c.status == "502" {
					continue // of a response, or of a message to write: no peer sees it
				}
				if c.table == "tls" || c.table == "status" {
					c.note = codeNotes[c.code]
				}
				if !slices.ContainsFunc(codes, func(o code) bool {
					return o.table == c.table && o.code == c.code && o.status == c.status && o.text == c.text
				}) {
					codes = append(codes, c)
				}
				found[source.table]++
			}
		}
	}
	for _, source := range codeSources {
		if found[source.table] == 0 {
			t.Errorf("no codes for the table %s in %s", source.table, source.files)
		}
	}
	return codes
}

// codesIn returns the codes of a file: literals of Failure and Error with the comment at
// their definition, constants named as codes, and logged codes.
func codesIn(tree *ast.File) (codes []code) {
	ast.Inspect(tree, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ValueSpec:
			name, note := n.Names[0].Name, docgen.Text(n.Doc, n.Comment)
			if len(n.Values) != 1 {
				return true
			}
			if ref, ok := n.Values[0].(*ast.UnaryExpr); ok {
				if c, ok := failureIn(ref.X); ok {
					c.note = meaning(name, note)
					codes = append(codes, c)
				}
				return false
			}
			isCode := strings.HasPrefix(name, "Code") || strings.HasPrefix(name, "refused")
			if text := literals(n.Values)[0]; isCode && text != "" {
				codes = append(codes, code{"", text, "500", "", sentence(note)})
			}
		case *ast.CompositeLit:
			if c, ok := failureIn(n); ok {
				codes = append(codes, c)
			}
		case *ast.CallExpr:
			args := literals(n.Args)
			if i := slices.Index(args, "code"); i >= 0 && i+1 < len(args) && args[i+1] != "" {
				codes = append(codes, code{"", args[i+1], "", "", ""})
			}
		}
		return true
	})
	return codes
}

// failureIn returns the code of a Failure or Error whose code and text are literals. It
// omits fields that are not literals.
func failureIn(x ast.Expr) (code, bool) {
	n, ok := x.(*ast.CompositeLit)
	if !ok {
		return code{}, false
	}
	of := n.Type
	if selector, ok := of.(*ast.SelectorExpr); ok {
		of = selector.Sel
	}
	if name, ok := of.(*ast.Ident); !ok || name.Name != "Failure" && name.Name != "Error" {
		return code{}, false
	}
	var parts []string
	for _, part := range n.Elts {
		if pair, ok := part.(*ast.KeyValueExpr); ok {
			part = pair.Value
		}
		if text := literals([]ast.Expr{part})[0]; text != "" {
			parts = append(parts, text)
		}
	}
	switch {
	case len(parts) == 2 && !isNumber(parts[1]):
		return code{"", parts[0], "", parts[1], ""}, true
	case len(parts) == 3:
		return code{"", parts[0], parts[1], parts[2], ""}, true
	}
	return code{}, false
}

// meaning returns the comment of a failure without its first words, "name means that".
// Other comments stay as they are.
func meaning(name, comment string) string {
	text, ok := strings.CutPrefix(comment, name+" means ")
	if !ok {
		return comment
	}
	return sentence(strings.TrimPrefix(text, "that "))
}

// sentence returns a comment behind a constant as a sentence.
func sentence(s string) string {
	if s == "" {
		return ""
	}
	return strings.ToUpper(s[:1]) + strings.TrimSuffix(s[1:], ".") + "."
}

func isNumber(text string) bool {
	_, err := strconv.Atoi(text)
	return err == nil
}

// literals returns the values of strings and numbers, "" for anything else.
func literals(exprs []ast.Expr) []string {
	values := make([]string, len(exprs))
	for i, expr := range exprs {
		lit, ok := expr.(*ast.BasicLit)
		if !ok {
			continue
		}
		values[i] = lit.Value
		if text, err := strconv.Unquote(lit.Value); err == nil {
			values[i] = text
		}
	}
	return values
}
