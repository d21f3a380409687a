package strictness

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/remora-proxy/remora/internal/corpus"
	"github.com/remora-proxy/remora/internal/must"
)

// scripts/strictness.sh sets the first one.
var (
	withProxies = flag.Bool("proxies", false, "compare Remora with nginx, HAProxy and Envoy on the corpus of requests")
	updateTable = flag.Bool("update", false, "rewrite testdata/strictness.md")
)

// A case is over after this time without an event. A second look at an unexplained
// difference takes longer, since the machine may be busy.
const (
	quietTime     = 500 * time.Millisecond
	longQuietTime = 3 * time.Second
)

// TestStrictnessBesideProxies sends the requests of the corpus to Remora and to three
// other proxies, each in front of a replica that records the bytes it gets. It fails
// when a proxy differs from Remora and testdata/strictness.txt does not say why.
func TestStrictnessBesideProxies(t *testing.T) {
	if !*withProxies {
		t.Skip("needs nginx, HAProxy and Envoy: see scripts/strictness.sh")
	}
	cases, err := corpus.Requests(os.DirFS(corpusDir))
	if err != nil {
		t.Fatal(err)
	}
	why, err := readExplanations("testdata/strictness.txt")
	if err != nil {
		t.Fatal(err)
	}
	c := comparison{cases: cases, why: why}
	for i := range products {
		p := products[i].start(t)
		if p.version != "" {
			t.Log(p.name, p.version)
		}
		c.proxies = append(c.proxies, p)
	}
	if err := c.observe(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := c.observeAgain(t.Context()); err != nil {
		t.Fatal(err)
	}
	differences := c.differences()
	for _, d := range why.explain(differences) {
		t.Errorf("not explained: %s, %s: %s, Remora: %s", d.proxy.name, d.c.Name, d.verdict, d.ours)
	}
	for _, r := range why.unused() {
		t.Errorf("explains nothing: %s | %s | %s", r.proxy, r.verdict, r.cases)
	}
	t.Logf("%d requests, %d differences", len(cases), len(differences))
	if *updateTable && !t.Failed() {
		must.WriteFile(t, "testdata/strictness.md", c.table(differences))
	}
}

// comparison is what the proxies make of the cases. The first proxy is Remora.
type comparison struct {
	cases   []corpus.Case
	proxies []*runningProxy
	why     explanations
	seen    [][]observed // by proxy and case
}

// difference is a case of which a proxy makes something else than Remora.
type difference struct {
	proxy   *runningProxy
	c       *corpus.Case
	ours    string // Remora's verdict
	verdict string // the proxy's
}

// observe sends each case to all proxies.
func (c *comparison) observe(ctx context.Context) error {
	c.seen = make([][]observed, len(c.proxies))
	errs := make([]error, len(c.proxies))
	var all sync.WaitGroup
	for i := range c.proxies {
		c.seen[i] = make([]observed, len(c.cases))
		all.Go(func() {
			errs[i] = forEach(ctx, len(c.cases), func(instance, j int) error { return c.look(i, instance, j, quietTime) })
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// observeAgain takes a longer look at each difference that has no explanation, and at
// each case whose explanation matched nothing.
func (c *comparison) observeAgain(ctx context.Context) error {
	type look struct{ proxy, c int }
	var again []look
	c.why.explain(c.differences())
	for j := range c.cases {
		n := len(again)
		for i, p := range c.proxies[1:] {
			d := c.differs(i+1, j)
			if d != nil && c.why.find(d) == nil || d == nil && c.why.expects(p, &c.cases[j]) {
				again = append(again, look{i + 1, j})
			}
		}
		if len(again) > n {
			again = append(again, look{0, j})
		}
	}
	c.why.reset()
	return forEach(ctx, len(again), func(instance, n int) error {
		return c.look(again[n].proxy, instance, again[n].c, longQuietTime)
	})
}

func (c *comparison) look(proxy, instance, j int, quiet time.Duration) (err error) {
	p := c.proxies[proxy]
	if c.seen[proxy][j], err = p.instances[instance].send(&c.cases[j], quiet); err != nil {
		return fmt.Errorf("%s: %s: %w", p.name, c.cases[j].Name, err)
	}
	return nil
}

func (c *comparison) differences() (found []*difference) {
	for i := 1; i < len(c.proxies); i++ {
		for j := range c.cases {
			if d := c.differs(i, j); d != nil {
				found = append(found, d)
			}
		}
	}
	return found
}

// differs is the difference between Remora and proxy i in case j, nil if there is none.
func (c *comparison) differs(i, j int) *difference {
	ours, theirs := &c.seen[0][j], &c.seen[i][j]
	d := &difference{proxy: c.proxies[i], c: &c.cases[j], ours: ours.verdict, verdict: theirs.verdict}
	if ours.verdict != theirs.verdict {
		return d
	}
	for k := range ours.requests {
		a, b := &ours.requests[k], &theirs.requests[k]
		switch {
		case a.Method != b.Method:
			d.verdict += " with another method"
		case a.Body != b.Body:
			d.verdict += " with another body"
		case a.Target != b.Target:
			d.verdict += " with another target"
		case a.Host != b.Host:
			d.verdict += " with another Host"
		default:
			continue
		}
		return d
	}
	return nil
}

// forEach calls do for each of n items, one item per instance at a time, until one
// call fails or ctx ends.
func forEach(ctx context.Context, n int, do func(instance, item int) error) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var all sync.WaitGroup
	var next atomic.Int64
	for i := range instancesPerProxy {
		all.Go(func() {
			for item := int(next.Add(1)) - 1; item < n && ctx.Err() == nil; item = int(next.Add(1)) - 1 {
				if err := do(i, item); err != nil {
					stop(err)
				}
			}
		})
	}
	all.Wait()
	return context.Cause(ctx)
}

// observed is what a proxy made of a case.
type observed struct {
	verdict  string // see verdict
	requests []corpus.Message
}

// send sends a case, then reads until the connection ends or nothing arrives for
// quiet, or for a quarter of that once all responses of the corpus are there.
func (i *instance) send(c *corpus.Case, quiet time.Duration) (observed, error) {
	i.replica.Take()
	nc, err := net.Dial("tcp", i.addr)
	if err != nil {
		return observed{}, err
	}
	defer nc.Close()
	if _, err := nc.Write(c.Bytes()); err != nil {
		return observed{}, err
	}
	var received []byte
	closed := false
	due := c.Answers()
	b := make([]byte, 64<<10)
	for !closed {
		wait := quiet
		if responses, _ := corpus.ParseAnswers(received, due); len(due) > 0 && len(responses) == len(due) {
			wait = quiet / 4
		}
		_ = nc.SetReadDeadline(time.Now().Add(wait))
		n, err := nc.Read(b)
		received = append(received, b[:n]...)
		if ne, ok := err.(net.Error); ok && ne.Timeout() {
			break
		}
		closed = err != nil
	}
	record := i.replica.Take()
	nc.Close()
	// What the end of this connection causes must not count for the next case.
	if err := i.ready(); err != nil {
		return observed{}, err
	}
	return observed{verdict(&record, string(received), closed), record.Requests}, nil
}

// verdict names what became of a case, coarsely enough to compare: how many requests
// were passed on, whether malformed bytes were, and whether the proxy refused the
// rest, closed without a response, or waited for more.
func verdict(r *corpus.Record, received string, closed bool) string {
	var words []string
	switch n := len(r.Requests); {
	case n == 1:
		words = append(words, "passed on")
	case n > 1:
		words = append(words, fmt.Sprintf("passed on as %d", n))
	}
	switch {
	case r.Wrong != nil:
		words = append(words, "passed on malformed")
	case r.Begun > 0:
		words = append(words, "passed on in part")
	}
	switch {
	case isRefusal(received):
		words = append(words, "refused")
	case len(words) > 0:
	case closed:
		words = append(words, "closed")
	default:
		words = append(words, "waited for")
	}
	return strings.Join(words, ", then ")
}

var statusLine = regexp.MustCompile(`HTTP/1\.[01] [2-5]`)

// isRefusal reports whether received holds a response that is not the replica's. No body
// of the replica looks like a status line; HTTP/0.9 has no status line.
func isRefusal(received string) bool {
	for _, at := range statusLine.FindAllStringIndex(received, -1) {
		head, _, _ := strings.Cut(received[at[0]:], "\r\n\r\n")
		if !strings.Contains(strings.ToLower(head), strings.ToLower(corpus.ReplicaField)+":") {
			return true
		}
	}
	return strings.HasPrefix(received, "<")
}
