package kubernetes

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/remora-proxy/remora/registry"
)

// played is an API server that a test plays, without a network: time passes only while all wait.
type played struct{ http.Handler }

// RoundTrip implements http.RoundTripper.
func (p played) RoundTrip(r *http.Request) (*http.Response, error) {
	body, w := io.Pipe()
	to := &writer{w: w, header: http.Header{}, begun: make(chan int, 1)}
	stop := func() { _ = body.CloseWithError(r.Context().Err()) }
	go func() {
		defer w.Close()
		p.ServeHTTP(to, r)
		to.WriteHeader(http.StatusOK)
	}()
	select {
	case <-r.Context().Done():
		stop()
		return nil, r.Context().Err()
	case status := <-to.begun:
		if r.URL.Query().Has("watch") { // a page is read to its end
			go func() { <-r.Context().Done(); stop() }()
		}
		return &http.Response{StatusCode: status, Body: body, Header: to.header, Request: r}, nil
	}
}

// writer is an http.ResponseWriter.
type writer struct {
	w       *io.PipeWriter
	header  http.Header
	begun   chan int // gets the status
	isBegun bool
}

func (w *writer) Header() http.Header { return w.header }

func (w *writer) WriteHeader(status int) {
	if !w.isBegun {
		w.isBegun = true
		w.begun <- status
	}
}

func (w *writer) Write(b []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	return w.w.Write(b)
}

// isWatch reports whether a request is for a watch.
func isWatch(r *http.Request) bool { return r.URL.Query().Has("watch") }

// page writes a list without slices, of version 7.
func page(w io.Writer) { fmt.Fprint(w, `{"metadata":{"resourceVersion":"7"}}`) }

// bookmark returns an event with a version, of at least so many bytes.
func bookmark(version string, size int) string {
	return fmt.Sprintf(`{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":%q},"text":%q}}`, version, strings.Repeat("x", size))
}

// inTime watches a Service of an API server that serve plays.
func inTime(t *testing.T, change func(*Options), serve http.HandlerFunc, test func(t *testing.T, r *Registry)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		o := Options{Namespace: "shop"}
		change(&o)
		r, err := newRegistry(o, &access{server: &url.URL{Scheme: "http", Host: "api.test"}})
		if err != nil {
			t.Fatal(err)
		}
		r.http.Transport = played{serve}
		stop := r.Watch("compute", func(*registry.Snapshot) {})
		test(t, r)
		stop()
		r.Close()
	})
}

func asIs(*Options) {}

// TestTries: the pauses between tries are longer each time, until a watch has lasted for longer than one takes to begin.
func TestTries(t *testing.T) {
	const works = 10 // the try whose watch lasts
	const enough = maxPause + requestTimeout
	for lasts, isShort := range map[time.Duration]bool{enough: false, enough + 1: true} {
		var lists []time.Time
		inTime(t, asIs, func(w http.ResponseWriter, r *http.Request) {
			switch {
			case !isWatch(r):
				lists = append(lists, time.Now())
				page(w)
			case len(lists) == works:
				w.WriteHeader(http.StatusOK)
				time.Sleep(lasts)
			default:
				w.WriteHeader(http.StatusForbidden)
			}
		}, func(t *testing.T, r *Registry) {
			time.Sleep(10 * time.Minute)
			synctest.Wait()
		})
		pause := minPause
		for i := range works + 1 {
			d := lists[i+1].Sub(lists[i])
			if i == works-1 {
				if d -= lasts; isShort {
					pause = minPause
				}
			}
			if d < pause/2 || d > pause*3/2 {
				t.Errorf("a watch of %v: pause %d is %v, want about %v", lasts, i, d, pause)
			}
			pause = min(2*pause, maxPause)
		}
	}
}

// TestWatchRequest: what a list and a watch ask for, and how long they may take. Watches of many sidecars do not end in step.
func TestWatchRequest(t *testing.T) {
	watches, shortest, longest := 0, time.Hour, time.Duration(0)
	inTime(t, asIs, func(w http.ResponseWriter, r *http.Request) {
		end, _ := r.Context().Deadline()
		q, limit := r.URL.Query(), time.Until(end)
		if accept := r.Header.Get("Accept"); accept != "application/json" || r.Header.Get("Authorization") != "" {
			t.Errorf("the header is %v", r.Header)
		}
		if !isWatch(r) {
			if limit != requestTimeout || q.Get("limit") != strconv.Itoa(pageSize) || len(q) != 1 {
				t.Errorf("a list of %v has %v", q, limit)
			}
			page(w)
			return
		}
		seconds, _ := strconv.Atoi(q.Get("timeoutSeconds"))
		of := time.Duration(seconds) * time.Second
		if of < watchTime || of >= 2*watchTime || limit != of+requestTimeout {
			t.Errorf("a watch of %v has %v", q, limit)
		}
		if version := strconv.Itoa(7 + watches); q.Get("resourceVersion") != version || q.Get("watch") != "1" || q.Get("allowWatchBookmarks") != "true" || len(q) != 4 {
			t.Errorf("watch %d asks for %v", watches, q)
		}
		shortest, longest = min(shortest, of), max(longest, of)
		if watches++; watches < 100 {
			fmt.Fprint(w, bookmark(strconv.Itoa(7+watches), 0))
			return
		}
		w.WriteHeader(http.StatusOK)
		<-r.Context().Done()
	}, func(t *testing.T, r *Registry) { synctest.Wait() })
	if watches != 100 || shortest > watchTime*5/4 || longest < watchTime*7/4 {
		t.Errorf("%d watches are from %v to %v", watches, shortest, longest)
	}
}

// TestSilence: a watch is given up once the API server has been silent for too long, and goes on from the last event.
func TestSilence(t *testing.T) {
	const silence, events = 30 * time.Second, 9
	var asked []string
	var at []time.Duration
	began := time.Time{}
	inTime(t, func(o *Options) { o.silence = silence }, func(w http.ResponseWriter, r *http.Request) {
		if !isWatch(r) {
			asked = append(asked, "list")
			page(w)
			return
		}
		if began.IsZero() {
			began = time.Now()
		}
		asked, at = append(asked, r.URL.Query().Get("resourceVersion")), append(at, time.Since(began))
		w.WriteHeader(http.StatusOK)
		if len(at) == 1 {
			for i := range events {
				time.Sleep(silence - 1)
				fmt.Fprint(w, bookmark(strconv.Itoa(8+i), 0))
			}
		}
		<-r.Context().Done()
	}, func(t *testing.T, r *Registry) {
		time.Sleep((events+2)*silence - time.Second)
		synctest.Wait()
		if want := []string{"list", "7", strconv.Itoa(7 + events)}; !slices.Equal(asked, want) || at[1] != events*(silence-1)+silence {
			t.Errorf("asked %v at %v, want %v", asked, at, want)
		}
		if now := r.Condition(); !now.Up {
			t.Errorf("%+v", now)
		}
	})
}

// TestEvents: what a watch does after an event, and which code an error has. Only a version that has gone is none.
func TestEvents(t *testing.T) {
	const bound = 2000
	invalid, failed, denied := registry.CodeInvalid, registry.CodeFailed, registry.CodeDenied
	for _, c := range []struct {
		name, events string
		next         string // what is asked for then: a list, or a version
		code, err    string
	}{
		{"a slice", `{"type":"ADDED","object":{"metadata":{"name":"a","resourceVersion":"8"}}}`, "8", "", ""},
		{"a change", `{"type":"MODIFIED","object":{"metadata":{"name":"a","resourceVersion":"8"}}}`, "8", "", ""},
		{"an end", `{"type":"DELETED","object":{"metadata":{"name":"a","resourceVersion":"8"}}}`, "8", "", ""},
		{"a bookmark", bookmark("8", 0), "8", "", ""},
		{"as many bytes as may be, again and again", bookmark("8", bound/2) + bookmark("9", bound/2) + bookmark("10", bound/2), "10", "", ""},
		{"too many bytes", bookmark("8", bound), "list", invalid, "a message has more than"},
		{"no event at all", "", "list", "", ""},
		{"the version has gone", `{"type":"ERROR","object":{"code":410,"message":"too old"}}`, "list", "", ""},
		{"an error", `{"type":"ERROR","object":{"code":500,"message":"why"}}`, "list", failed, "status 500: why"},
		{"no account", `{"type":"ERROR","object":{"code":401,"message":"who"}}`, "list", denied, "status 401: who"},
		{"no permission", `{"type":"ERROR","object":{"code":403,"message":"no"}}`, "list", denied, "status 403: no"},
		{"an unknown event", `{"type":"WHAT","object":{"metadata":{"resourceVersion":"8"}}}`, "list", invalid, `an unknown event "WHAT"`},
		{"no object", `{"type":"ADDED","object":7}`, "list", invalid, "cannot unmarshal number"},
		{"no slice", `{"type":"ADDED","object":{"metadata":{"name":7,"resourceVersion":"8"}}}`, "list", invalid, "cannot unmarshal number"},
		{"no JSON", `x`, "list", invalid, "invalid character"},
		{"half an event", `{"type":"BOOK`, "list", registry.CodeUnreachable, "unexpected EOF"},
	} {
		var asked []string
		inTime(t, func(o *Options) { o.maxMessage = bound }, func(w http.ResponseWriter, r *http.Request) {
			asked = append(asked, "list")
			if isWatch(r) {
				asked[len(asked)-1] = r.URL.Query().Get("resourceVersion")
			}
			switch len(asked) {
			case 1:
				page(w)
			case 2:
				fmt.Fprint(w, c.events)
			default:
				<-r.Context().Done()
			}
		}, func(t *testing.T, r *Registry) {
			time.Sleep(time.Second)
			synctest.Wait()
			if want := []string{"list", "7", c.next}; !slices.Equal(asked, want) {
				t.Errorf("%s: asked %v, want %v", c.name, asked, want)
			}
			now := r.Condition()
			if now.Code != c.code || now.Up != (c.code == "") || c.err != "" && !strings.Contains(now.Err.Error(), c.err) {
				t.Errorf("%s: %+v", c.name, now)
			}
		})
	}
}

// TestListBounds: a list has no more slices than the bound, and no more is read of why a list is refused than 64 KiB.
func TestListBounds(t *testing.T) {
	sliceList := func(n int) string {
		var b strings.Builder
		b.WriteString(`{"metadata":{"resourceVersion":"7"},"items":[{"metadata":{"name":"0"}}`)
		for i := 1; i < n; i++ {
			fmt.Fprintf(&b, `,{"metadata":{"name":"%d"}}`, i)
		}
		return b.String() + "]}"
	}
	refusal := func(size int) string {
		const before, after = `{"message":"why`, `"}`
		return before + strings.Repeat(" ", size-len(before)-len(after)) + after
	}
	for _, c := range []struct {
		name   string
		status int
		body   string
		code   string
		err    string // none if the code is ""
	}{
		{"as many as may be", 200, sliceList(maxSlices), "", ""},
		{"one more", 200, sliceList(maxSlices + 1), registry.CodeInvalid, "more than 20000 EndpointSlices"},
		{"a long reason", 500, refusal(64 << 10), registry.CodeFailed, "status 500: why"},
		{"too long a reason", 500, refusal(64<<10 + 1), registry.CodeFailed, "status 500: "},
	} {
		inTime(t, asIs, func(w http.ResponseWriter, r *http.Request) {
			if isWatch(r) {
				w.WriteHeader(http.StatusOK)
				<-r.Context().Done()
				return
			}
			w.WriteHeader(c.status)
			fmt.Fprint(w, c.body)
		}, func(t *testing.T, r *Registry) {
			synctest.Wait()
			now := r.Condition()
			if now.Code != c.code || now.Up != (c.code == "") || c.code != "" && !strings.HasSuffix(strings.TrimSpace(now.Err.Error()), strings.TrimSpace(c.err)) {
				t.Errorf("%s: %+v", c.name, now)
			}
		})
	}
}

// TestBounded: so many bytes may be read, one at a time, and no more.
func TestBounded(t *testing.T) {
	const most = 3
	b := &bounded{r: strings.NewReader("abcd"), left: most}
	for i := range most + 1 {
		n, err := b.Read(make([]byte, 1))
		if isOver := i == most; isOver != (err == errLarge) || isOver != (n == 0) {
			t.Errorf("byte %d: %d, %v", i, n, err)
		}
	}
}
