package peers

import (
	"encoding/xml"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/remora-proxy/remora/internal/must"
)

// TestHTTP2PeersSpec runs each case of h2spec against a listener.
func TestHTTP2PeersSpec(t *testing.T) {
	m := newMirror(t)
	for _, coded := range []bool{false, true} {
		name, options := "plain", []string{}
		if coded {
			name, options = "TLS", []string{"--tls", "--insecure"}
		}
		t.Run(name, func(t *testing.T) {
			endpoint := m.plain
			if *http2Peers == "--direct" {
				endpoint = map[bool]string{false: m.plain, true: m.coded}[coded]
			}
			addr := m.hop(t, m.listens(coded), m.speaks("http", false), endpoint)
			host, port, _ := net.SplitHostPort(addr)
			report := filepath.Join(t.TempDir(), "report.xml")
			said, _ := runPeer(append([]string{"h2spec"}, append(options, "--host", host, "--port", port, "--path", "/text", "--strict", "--timeout", "5", "--junit-report", report)...)...)
			checkSpec(t, report, said, func(name string) bool {
				return name == "Sends invalid connection preface" && !coded && isRequest(t, addr)
			})
		})
	}
}

// isRequest reports whether what h2spec sends as a wrong preface gets the response of HTTP/1.1, and
// the end of the connection: a listener without TLS speaks that as well.
func isRequest(t *testing.T, addr string) bool {
	nc := must.Dial(t, "tcp", addr)
	defer nc.Close()
	_, _ = io.WriteString(nc, "INVALID CONNECTION PREFACE\r\n\r\n")
	said, err := io.ReadAll(nc)
	return err == nil && strings.HasPrefix(string(said), "HTTP/1.1 400 ")
}

// checkSpec makes a test of each case in a report of h2spec. A case may fail if passes says so.
func checkSpec(t *testing.T, file, said string, passes func(name string) bool) {
	t.Helper()
	var report struct {
		Suites []struct {
			ID    string `xml:"id,attr"`
			Name  string `xml:"name,attr"`
			Cases []struct {
				Name    string  `xml:"classname,attr"`
				Failure *string `xml:"failure"`
				Error   *string `xml:"error"`
				Skipped *string `xml:"skipped"`
			} `xml:"testcase"`
		} `xml:"testsuite"`
	}
	b, err := os.ReadFile(file)
	if err == nil {
		err = xml.Unmarshal(b, &report)
	}
	if err != nil {
		t.Fatalf("%v: %s", err, said)
	}
	n := 0
	for _, s := range report.Suites {
		for _, c := range s.Cases {
			n++
			t.Run(s.Name+": "+c.Name, func(t *testing.T) {
				for _, wrong := range []*string{c.Failure, c.Error, c.Skipped} {
					if wrong != nil && *http2Peers != "--direct" && !passes(c.Name) { // Go's server fails some
						t.Error(*wrong)
					}
				}
			})
		}
	}
	if n < 140 {
		t.Errorf("%d cases: %s", n, said)
	}
}
