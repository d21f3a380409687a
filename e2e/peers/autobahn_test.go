package peers

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/gorilla/websocket"

	"github.com/remora-proxy/remora/e2e/harness"
	"github.com/remora-proxy/remora/internal/eventually"
	"github.com/remora-proxy/remora/internal/must"
)

// scripts/autobahn.sh sets these.
var (
	autobahn      = flag.String("autobahn", "", "test WebSockets with this program of the Autobahn suite")
	autobahnCases = flag.String("autobahn-cases", "*", "patterns of cases, with commas between them")
	autobahnLess  = flag.String("autobahn-less", "", "patterns of cases that are left out, with commas between them")
)

// autobahnWays are the ways between the suite and its peer. The first one is what the others are compared with.
var autobahnWays = []string{"direct", "one", "two"}

// autobahnSpec is a specification of the suite, as client or as server.
type autobahnSpec struct {
	Outdir        string           `json:"outdir"`
	Cases         []string         `json:"cases"`
	Exclude       []string         `json:"exclude-cases"`
	ExcludeAgents map[string]any   `json:"exclude-agent-cases"`
	Servers       []autobahnServer `json:"servers,omitempty"` // of the client
	URL           string           `json:"url,omitempty"`     // of the server
}

// autobahnServer is a server that the suite tests.
type autobahnServer struct {
	Agent string `json:"agent"`
	URL   string `json:"url"`
}

// newAutobahnSpec returns a specification with the cases that are not left out.
func newAutobahnSpec(t *testing.T) *autobahnSpec {
	if *autobahn == "" {
		t.Skip("needs another program: see scripts/autobahn.sh")
	}
	s := &autobahnSpec{Outdir: t.TempDir(), Cases: strings.Split(*autobahnCases, ","), Exclude: []string{}, ExcludeAgents: map[string]any{}}
	if *autobahnLess != "" {
		s.Exclude = strings.Split(*autobahnLess, ",")
	}
	return s
}

// command returns the command that runs the suite in a mode.
func (s *autobahnSpec) command(ctx context.Context, t *testing.T, mode string) *exec.Cmd {
	b, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "spec.json")
	must.WriteFile(t, file, b)
	return exec.CommandContext(ctx, *autobahn, "--mode", mode, "--spec", file, "--webport", "0")
}

// TestAutobahnClient: the suite is the client of a server of WebSockets.
func TestAutobahnClient(t *testing.T) {
	s := newAutobahnSpec(t)
	up := websocket.Upgrader{EnableCompression: true, CheckOrigin: func(*http.Request) bool { return true }}
	app := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c, err := up.Upgrade(w, r, nil); err == nil {
			echoSocket(c)
		}
	}))
	t.Cleanup(app.Close)
	ways := waysTo("http")
	for _, way := range autobahnWays {
		s.Servers = append(s.Servers, autobahnServer{way, "ws://" + ways[way](t, app.Listener.Addr().String())})
	}
	cmd := s.command(t.Context(), t, "fuzzingclient")
	cmd.WaitDelay = time.Second
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	s.compare(t)
}

// TestAutobahnServer: the suite is the server of a client of WebSockets.
func TestAutobahnServer(t *testing.T) {
	s := newAutobahnSpec(t)
	// The client refuses the compression of the suite's server: it has none that keeps its context between messages.
	s.Exclude = append(s.Exclude, "12.*", "13.*")
	addr := harness.FreeAddrs(t, 1)[0]
	s.URL = "ws://" + addr
	harness.StartProgram(t, s.command(context.Background(), t, "fuzzingserver"))
	harness.AwaitListener(t, "the suite", addr)
	dialer := websocket.Dialer{HandshakeTimeout: harness.Patience}
	host := http.Header{"Host": {addr}} // the suite refuses that of a sidecar
	dial := func(at, path string) *websocket.Conn {
		c, _, err := dialer.Dial("ws://"+at+path, host)
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		return c
	}
	c := dial(addr, "/getCaseCount")
	_, b, err := c.ReadMessage()
	c.Close()
	n, err2 := strconv.Atoi(string(b))
	if err := errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	if n == 0 {
		t.Skip("all cases are about compression")
	}
	ways := waysTo("http")
	for _, way := range autobahnWays {
		at := ways[way](t, addr)
		for i := range n {
			echoSocket(dial(at, fmt.Sprintf("/runCase?case=%d&agent=%s", i+1, way)))
		}
	}
	// The suite has the result of a case once its own connection ends, which may be after the client's.
	last := autobahnWays[len(autobahnWays)-1]
	eventually.True(t, "the suite to have all results", func() bool {
		_, _, _ = dial(addr, "/updateReports?agent=direct").ReadMessage()
		return len(s.index(t)[last]) == n
	})
	s.compare(t)
}

// echoSocket sends back what arrives, to the end of a WebSocket.
func echoSocket(c *websocket.Conn) {
	defer c.Close()
	for {
		kind, b, err := c.ReadMessage()
		if err == nil && kind == websocket.TextMessage && !utf8.Valid(b) {
			_ = c.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(websocket.CloseInvalidFramePayloadData, ""), time.Time{})
			return
		}
		if err == nil {
			err = c.WriteMessage(kind, b)
		}
		if err != nil {
			return
		}
	}
}

// autobahnResult is what the suite reports of a case. A nil code is that of a connection without a Close frame.
type autobahnResult struct {
	Behavior       string         `json:"behavior"`
	BehaviorClose  string         `json:"behaviorClose"`
	Received       []any          `json:"received"`
	RemoteCode     *int           `json:"remoteCloseCode"`
	RemoteReason   *string        `json:"remoteCloseReason"`
	Clean          bool           `json:"wasClean"`
	FramesReceived map[string]int `json:"rxFrameStats"` // by opcode
	FramesSent     map[string]int `json:"txFrameStats"`
}

// autobahnReports are the files of the reports, by way and case.
type autobahnReports map[string]map[string]struct {
	File string `json:"reportfile"`
}

// index returns which reports there are.
func (s *autobahnSpec) index(t *testing.T) (index autobahnReports) {
	if err := json.Unmarshal(must.ReadFile(t, filepath.Join(s.Outdir, "index.json")), &index); err != nil {
		t.Fatal(err)
	}
	return index
}

// compare compares the reports of each way with those of the first one, and makes a test of each case.
func (s *autobahnSpec) compare(t *testing.T) {
	index := s.index(t)
	result := func(t *testing.T, way, name string) (r autobahnResult) {
		if err := json.Unmarshal(must.ReadFile(t, filepath.Join(s.Outdir, index[way][name].File)), &r); err != nil {
			t.Fatal(err)
		}
		return r
	}
	direct := autobahnWays[0]
	names := slices.Sorted(maps.Keys(index[direct]))
	behaviors := map[string]int{}
	for _, name := range names {
		want := result(t, direct, name)
		behaviors[want.Behavior]++
		for _, way := range autobahnWays[1:] {
			t.Run(way+"/"+name, func(t *testing.T) {
				if got := result(t, way, name); !reflect.DeepEqual(got, want) {
					t.Errorf("%s: %+v\n%s: %+v", way, got, direct, want)
				}
			})
		}
	}
	t.Logf("%d cases: %v", len(names), behaviors)
	// The peer implements what the 247 cases of the short form test, but not each option of compression.
	if len(names) == 0 || behaviors["FAILED"] > 0 || *autobahnCases == "*" && behaviors["OK"] < 200 {
		t.Error("the peer itself does not pass")
	}
}
