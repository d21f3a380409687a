package proxytest

import (
	"bytes"
	"context"
	"encoding/json"
	"path/filepath"
	"testing"
	"time"

	"github.com/remora-proxy/remora/internal/must"
	"github.com/remora-proxy/remora/proxy/telemetry/accesslog"
	"github.com/remora-proxy/remora/proxy/telemetry/trace"
)

// AccessLine is a line of the access log.
type AccessLine struct {
	Time      time.Time `json:"time"`
	Listener  string    `json:"listener"`
	Client    string    `json:"client"`
	Protocol  string    `json:"protocol"`
	Stream    string    `json:"stream"`
	RequestID string    `json:"request_id"`
	TraceID   string    `json:"trace_id"`
	Method    string    `json:"method"`
	Authority string    `json:"authority"`
	Path      string    `json:"path"`
	Service   string    `json:"service"`
	Endpoint  string    `json:"endpoint"`
	Outcome   string    `json:"outcome"`
	Status    int       `json:"status"`
	GRPC      string    `json:"grpc_status"`
	Error     string    `json:"error"`
	LineFilters
	BytesIn  int `json:"bytes_in"`
	BytesOut int `json:"bytes_out"`
	LineTimes
	Attempts int  `json:"attempts"`
	Retries  int  `json:"retries"`
	Hedges   int  `json:"hedges"`
	HedgeWon bool `json:"hedge_won"`
}

// LineFilters are what filters did to the request of an AccessLine.
type LineFilters struct {
	Cache    string `json:"cache"`
	Fault    string `json:"fault"`
	Fallback string `json:"fallback"`
}

// LineTimes are the times of an AccessLine.
type LineTimes struct {
	DurationMS float64 `json:"duration_ms"`
	QueuedMS   float64 `json:"queued_ms"`
}

// accessFile is the access log of a node.
type accessFile struct {
	path   string
	writer *accesslog.Writer
	counts accesslog.Counts
}

// LogAll is the YAML of an access log with all requests.
const LogAll = "access_log: {path: /log}"

// openAccessLog opens the access log that the node's configuration asks for, in a file of
// the test.
func (n *Node) openAccessLog() {
	if n.Cfg.AccessLog.Path == "" {
		return
	}
	n.log = &accessFile{path: filepath.Join(n.m.T.TempDir(), "access.log")}
	q := accesslog.NewQueue(n.Cfg.AccessLog.Buffer, n.m.Loops, &n.log.counts)
	var err error
	if n.log.writer, err = accesslog.Open(n.log.path, q, nil); err != nil {
		n.m.T.Fatal(err)
	}
	n.Proc.Generation().LogTo(q)
}

// AccessLines closes the node's access log and returns its lines.
func (n *Node) AccessLines() (all []AccessLine) {
	t := n.m.T
	t.Helper()
	n.Proc.FlushAccessLog()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := n.log.writer.Close(ctx); err != nil {
		t.Fatal(err)
	}
	text := must.ReadFile(t, n.log.path)
	for line := range bytes.Lines(text) {
		d := json.NewDecoder(bytes.NewReader(line))
		d.DisallowUnknownFields()
		var l AccessLine
		if err := d.Decode(&l); err != nil {
			t.Fatalf("%v in %s", err, line)
		}
		all = append(all, l)
	}
	if c := &n.log.counts; c.Lines.Load() != uint64(len(all)) || c.Overflow.Load()+c.Lost.Load() > 0 {
		t.Errorf("%d lines, counted %d, %d dropped, %d lost", len(all), c.Lines.Load(), c.Overflow.Load(), c.Lost.Load())
	}
	return all
}

// OnlyAccessLine closes the node's access log and returns its only line.
func (n *Node) OnlyAccessLine() AccessLine {
	n.m.T.Helper()
	all := n.AccessLines()
	if len(all) != 1 {
		n.m.T.Fatalf("%d lines, want one: %+v", len(all), all)
	}
	return all[0]
}

// records are the spans of a node, in the order in which requests ended.
type records []*trace.Record

func (l *records) Put(r *trace.Record) { *l = append(*l, r) }

// Only returns the only record.
func (l *records) Only(t *testing.T) *trace.Record {
	t.Helper()
	if len(*l) != 1 {
		t.Fatalf("%d records, want 1", len(*l))
	}
	return (*l)[0]
}
