package printable

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"testing"
	"unicode/utf8"
)

// harmful are characters that do something in a terminal, an editor or a parser of lines.
const harmful = "\x00\x1b[2J\x7f\u0080\u0085\u009b\u00a0\u00ad\u200b\u200e\u2028\u2029\u202a\u202e\u2066\u2069\ufeff\U000e0001"

// TestJSON: JSON of the log has no character that does something, and means the same.
func TestJSON(t *testing.T) {
	const text = "a é \U0001F600 \t\n\"\\" + harmful
	var out bytes.Buffer
	slog.New(slog.NewJSONHandler(JSON(&out), nil)).Info(text, text, text)
	for _, r := range out.String() {
		if !Is(r) && r != '\n' {
			t.Errorf("it has %U", r)
		}
	}
	var got map[string]string
	if err := json.Unmarshal(out.Bytes(), &got); err != nil || got["msg"] != text || got[text] != text {
		t.Errorf("%v: %q", err, got)
	}
}

func TestText(t *testing.T) {
	if got := Text("a\tb\n"+harmful, "\t"); got[:3] != "a\tb" || utf8.RuneCountInString(got) != utf8.RuneCountInString("a\tb\n"+harmful) {
		t.Errorf("%q", got)
	}
	for _, r := range Text(harmful, "") {
		if !Is(r) && r != utf8.RuneError {
			t.Errorf("it has %U", r)
		}
	}
}
