package bench

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/remora-proxy/remora/lab/child"
)

// GRPCRows are unary gRPC calls, through one proxy and two.
func GRPCRows() []Row {
	return overGRPC(slices.DeleteFunc(plainRows(), func(r Row) bool {
		return slices.ContainsFunc(r.chain, func(h hop) bool { return h.config == "" }) // a floor or a relay
	}))
}

// overGRPC lets rows carry gRPC, by HTTP/2 without TLS on each way but the link.
func overGRPC(rows []Row) []Row {
	for i := range rows {
		r := &rows[i]
		r.grpc = true
		r.chain = slices.Clone(r.chain)
		for j := range r.chain {
			h := &r.chain[j]
			h.GRPC = true
			if h.Sidecar != nil && h.Sidecar.Out == "http" {
				h.Sidecar.Out = "grpc"
			}
		}
	}
	return rows
}

// streamsPerConnection is how many calls a connection of a load has at a time.
const streamsPerConnection = 8

// Streams is a loop of so many streams, each of which is followed by the next as soon as it has its response.
func Streams(n int, d time.Duration) Load {
	name := fmt.Sprintf("closed loop, %d streams over %d connections", n, n/streamsPerConnection)
	return Load{Name: name, period: closedPeriod, send: unaryCalls(n / streamsPerConnection).run(d)}
}

// grpcCalls are the calls of a closed loop. Each has one message each way.
type grpcCalls struct {
	request, response    int // bytes of the messages
	connections, streams int // the streams are those of each connection
}

const grpcPrefix = 5 // bytes before a message

func unaryCalls(connections int) grpcCalls {
	return grpcCalls{request: 300, response: 200, connections: connections, streams: streamsPerConnection}
}

// run makes the calls for d with h2load, which costs the machine less than a load in Go.
func (c grpcCalls) run(d time.Duration) func(context.Context, *Stack) (*Result, error) {
	return func(ctx context.Context, s *Stack) (*Result, error) { return c.h2load(ctx, s, d) }
}

func (c grpcCalls) h2load(ctx context.Context, s *Stack, d time.Duration) (*Result, error) {
	ctx, cancel := context.WithTimeout(ctx, d+requestTimeout)
	defer cancel()
	body, log := filepath.Join(s.dir, "request"), filepath.Join(s.dir, "calls")
	message := binary.BigEndian.AppendUint32([]byte{0}, uint32(c.request))
	message = append(message, strings.Repeat("7", c.request)...)
	if err := os.WriteFile(body, message, 0o600); err != nil {
		return nil, err
	}
	defer os.Remove(log) // h2load appends to it
	out, err := child.Output(ctx, s.Tools[H2load], "-t1", "-c"+strconv.Itoa(c.connections),
		"-m"+strconv.Itoa(c.streams), "-D"+strconv.FormatFloat(math.Ceil(d.Seconds()), 'f', 0, 64), "-d", body, "--log-file="+log,
		"-H", "content-type: application/grpc", "-H", "te: trailers", "-H", "grpc-timeout: 60S", "-H", "user-agent: grpc-bench",
		c.url(s))
	if err != nil {
		return nil, err
	}
	r, err := parseH2load(out, c.response)
	if err == nil {
		r.Figures, err = latencyOfLog(log)
	}
	return r, err
}

func (c grpcCalls) url(s *Stack) string {
	if s.row.replicas.streams {
		return fmt.Sprintf("%s/bytes?size=%d", strings.TrimSuffix(s.URL, computePath), c.response)
	}
	return s.URL
}

var h2loadResult = regexp.MustCompile(`(?s)finished in ([\d.]+)(m?s), .*requests: .* (\d+) done, .*status codes: (\d+) 2xx.*\((\d+)\) data`)

// grpcVerdicts judges the promises of the bench of gRPC.
func (s Samples) grpcVerdicts(load string) (all []Verdict) {
	for _, peer := range []struct {
		name  string
		limit float64
	}{{"nginx-2", 0.8}, {"haproxy-2", 0.8}, {"envoy-2", 0.3}} {
		all = append(all, s.compare("CPU per request of two hops", "remora-2", peer.name, load, CPU, peer.limit))
	}
	return all
}

// parseH2load reads the counts that h2load prints. A gRPC error is a response without a message. It shows in the number of
// bytes; message is the size of a good one.
func parseH2load(out []byte, message int) (*Result, error) {
	m := h2loadResult.FindSubmatch(out)
	if m == nil {
		return nil, fmt.Errorf("h2load printed no result: %s", brief(string(out)))
	}
	number := func(i int) float64 {
		v, _ := strconv.ParseFloat(string(m[i]), 64) // digits, by the expression
		return v
	}
	seconds := number(1)
	if string(m[2]) == "ms" {
		seconds /= 1e3
	}
	done := int64(number(3))
	good := min(done, int64(number(4)), int64(number(5))/int64(grpcPrefix+message))
	return &Result{Requests: done, Errors: done - good, Seconds: seconds}, nil
}

// latencyOfLog reads the third field of each line, in microseconds.
func latencyOfLog(path string) (Figures, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	h := hdrhistogram.New(1, int64(requestTimeout), 3)
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		_, rest, _ := strings.Cut(lines.Text(), "\t")
		_, last, _ := strings.Cut(rest, "\t")
		us, err := strconv.ParseInt(last, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("log of h2load: %w", err)
		}
		h.RecordValue(us * int64(time.Microsecond)) // longer ones can't be: the load is bounded
	}
	return latencyOf(h), lines.Err()
}
