package http1

import (
	"encoding/json"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/remora-proxy/remora/internal/must"
)

// A fault breaks one rule of the decoder. The faults are known from other decoders.
type fault struct {
	name    string
	file    string
	replace []string // old and new in turn; each old text occurs once
	by      string   // a subtest of TestCorpusRequests that must catch it
}

var faults = []fault{
	{"a bare LF ends a line", "head.go", []string{
		`if lf == h.line || w[lf-1] != '\r' {`,
		`if lf == h.line {`,
	}, "field_line_ends_in_bare_LF"},
	{"a list of equal lengths is merged", "fields.go", []string{
		`f.length, err = contentLength(value)`,
		`first, second, _ := bytes.Cut(value, []byte(","))
		if bytes.Equal(first, second) {
			value = first
		}
		f.length, err = contentLength(value)`,
	}, "list_in_a_length_5,5"},
	{"equal lengths are merged", "fields.go", []string{
		`if f.length >= 0 {
			return false, ErrDuplicateLength`,
		`if n, _ := contentLength(value); f.length >= 0 && n != f.length {
			return false, ErrDuplicateLength`,
	}, "two_lengths_5"},
	{"the coding overrides the length", "fields.go", []string{
		`case f.coding && f.length >= 0:`,
		`case f.coding && f.length < -1:`,
	}, "CL.TE:_a_request_behind_the_last_chunk"},
	{"a chunk size overflows", "chunked.go", []string{
		`const maxSizeDigits = 16`,
		`const maxSizeDigits = 64`,
		`if d.left > room>>4 {`,
		`if room < 0 {`,
		`if d.left = d.left<<4 | v; d.left > room {`,
		`if d.left = (d.left<<4 | v) &^ (-1 << 63); room < 0 {`,
	}, "size_that_wraps_around_10000000000000005"},
	{"a chunk's size ends in a bare LF", "chunked.go", []string{
		`case c == '\r':
		d.part = chunkSizeLF`,
		`case c == '\n':
		d.digits, d.part = 0, chunkData
	case c == '\r':
		d.part = chunkSizeLF`,
	}, "size_line_ends_in_bare_LF"},
	{"a quote in an extension need not be closed", "chunkext.go", []string{
		`case c < ' ' && c != '\t' || c == 0x7f:`,
		`case c == '\r':
		d.part = chunkSizeLF
	case c < ' ' && c != '\t' || c == 0x7f:`,
	}, `extension_that_is_none_;a=\x22b`},
	{"the end of a chunk is not looked at", "chunked.go", []string{
		`if c != '\r' {
			return ErrBadChunkEnd`,
		`if d.part != chunkCR {
			return ErrBadChunkEnd`,
		`if c != '\n' {
			return ErrBadChunkEnd`,
		`if d.part != chunkLF {
			return ErrBadChunkEnd`,
	}, "chunk_ends_in_two_bytes"},
}

// TestFaultsAreCaught checks that the corpus fails for each fault.
func TestFaultsAreCaught(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the package for each fault")
	}
	for _, f := range faults {
		t.Run(f.name, func(t *testing.T) {
			run := exec.Command("go", "test", "-count=1", "-vet=off", "-overlay="+f.overlay(t), "-run=^TestCorpus", ".")
			out, err := run.CombinedOutput()
			switch {
			case err == nil:
				t.Error("the corpus passes")
			case !strings.Contains(string(out), "--- FAIL: TestCorpusRequests/"+f.by+" "):
				t.Errorf("case %s did not fail:\n%.4000s", f.by, out)
			}
		})
	}
}

// overlay writes a file for go test -overlay that builds the fault in.
func (f *fault) overlay(t *testing.T) string {
	t.Helper()
	source := must.ReadFile(t, f.file)
	text := string(source)
	for i := 0; i < len(f.replace); i += 2 {
		if strings.Count(text, f.replace[i]) != 1 {
			t.Fatalf("%s does not contain this exactly once:\n%s", f.file, f.replace[i])
		}
		text = strings.Replace(text, f.replace[i], f.replace[i+1], 1)
	}
	original, err := filepath.Abs(f.file)
	if err != nil {
		t.Fatal(err)
	}
	broken := filepath.Join(t.TempDir(), f.file)
	list, err := json.Marshal(map[string]map[string]string{"Replace": {original: broken}})
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(t.TempDir(), "overlay.json")
	for file, content := range map[string]string{broken: text, name: string(list)} {
		must.WriteFile(t, file, content)
	}
	return name
}
