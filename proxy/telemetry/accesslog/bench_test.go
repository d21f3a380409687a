package accesslog

import (
	"context"
	"io"
	"log/slog"
	"testing"
)

// BenchmarkAdd measures what a line costs a loop. For comparison, slog writes the
// same line with the JSON handler of log/slog.
func BenchmarkAdd(b *testing.B) {
	r := example()
	r.Stream, r.Error = "", ""
	b.Run("feed", func(b *testing.B) {
		q := NewQueue(0, 1, &Counts{})
		var f Feed
		f.Use(q)
		b.ReportAllocs()
		for b.Loop() {
			f.Add(r)
			if len(q.full) > 0 {
				q.free <- <-q.full
			}
		}
	})
	b.Run("slog", func(b *testing.B) {
		log := slog.New(slog.NewJSONHandler(io.Discard, nil))
		b.ReportAllocs()
		for b.Loop() {
			log.LogAttrs(context.Background(), slog.LevelInfo, "", slog.String("listener", r.Listener), slog.String("client", r.Client),
				slog.String("protocol", r.Protocol), slog.String("request_id", string(r.RequestID)),
				slog.String("trace_id", string(r.TraceID)), slog.String("method", string(r.Method)),
				slog.String("authority", string(r.Authority)), slog.String("path", string(r.Path)),
				slog.String("service", r.Service), slog.String("endpoint", r.Endpoint), slog.String("outcome", r.Outcome),
				slog.Int("status", r.Status), slog.Int64("bytes_in", r.BytesIn), slog.Int64("bytes_out", r.BytesOut),
				slog.Float64("duration_ms", r.Duration.Seconds()*1e3), slog.Float64("queued_ms", r.Queued.Seconds()*1e3),
				slog.Int("attempts", r.Attempts), slog.Int("retries", r.Retries), slog.Int("hedges", r.Hedges),
				slog.Bool("hedge_won", r.HedgeWon))
		}
	})
}
