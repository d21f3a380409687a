package proxytest

import (
	"testing"

	"github.com/remora-proxy/remora/proxy/telemetry/trace"
)

// records are what a node has recorded, in the order in which requests were over.
type records []*trace.Record

func (l *records) Put(r *trace.Record) { *l = append(*l, r) }

// Only is the one record that there is.
func (l *records) Only(t *testing.T) *trace.Record {
	t.Helper()
	if len(*l) != 1 {
		t.Fatalf("%d records, want 1", len(*l))
	}
	return (*l)[0]
}
