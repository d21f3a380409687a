package load

import (
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestLog(t *testing.T) {
	url := serve(t, func(n int64, nonce string, c net.Conn) bool {
		switch {
		case n <= 10: // of the warm-up
			return ok(nonce, c)
		case n == 12:
			_, err := io.WriteString(c, "HTTP/1.1 502 Bad Gateway\r\nx-remora-error: upstream-reset\r\ncontent-length: 0\r\n\r\n")
			return err == nil
		case n == 13:
			_, err := io.WriteString(c, "HTTP/1.1 500 No\r\ncontent-length: 0\r\n\r\n")
			return err == nil
		}
		return n != 14 && ok(nonce, c)
	})
	var log strings.Builder
	before := time.Now()
	run(t, Options{Targets: []string{url}, Rate: 100, Warmup: 100 * time.Millisecond, Duration: 50 * time.Millisecond,
		Connections: 1, MaxConnections: 1, Log: &log})
	var ends []string
	for line := range strings.Lines(log.String()) {
		var due, latency int64
		var end struct{ status, kind, code string }
		if _, err := fmt.Sscan(line, &due, &latency, &end.status, &end.kind, &end.code); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		if due < before.UnixMicro() || due+latency > time.Now().UnixMicro() || latency < 0 {
			t.Errorf("%q: not within the run", line)
		}
		ends = append(ends, end.status+" "+end.kind+" "+end.code)
	}
	want := []string{"200 - -", "502 status upstream-reset", "500 status -", "0 reset -", "200 - -"}
	if !slices.Equal(ends, want) {
		t.Errorf("ends %q, want %q", ends, want)
	}
}
