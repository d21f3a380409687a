package kubernetes

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/remora-proxy/remora/internal/backoff"
	"github.com/remora-proxy/remora/registry"
	"github.com/remora-proxy/remora/registry/kept"
)

const (
	pageSize       = 500              // slices of one answer to a list, unless these are too large
	requestTimeout = 10 * time.Second // of one page, and until a watch begins
	watchSilence   = 3 * time.Minute  // the API server sends a bookmark each minute
	watchTime      = 5 * time.Minute  // the API server ends a watch after that, or up to twice that
	maxMessage     = 16 << 20         // bytes of a page, and of an event
	maxSlices      = 20_000           // of a namespace; a longer list is an error
)

var (
	errGone    = errors.New("the version of the last list has gone")
	errLarge   = fmt.Errorf("a message has more than %d bytes", maxMessage)
	errTooMany = fmt.Errorf("the namespace has more than %d EndpointSlices", maxSlices)
)

// follower follows the EndpointSlices of one namespace.
type follower struct {
	r         *Registry
	namespace string
	contact   *registry.Contact
	pageSize  int // of the goroutine that lists: slices that fit into one response

	mu     sync.Mutex
	slices *sliceIndex // nil before the first list
	users  map[*kept.List]*user
}

// user is a watch of a Service.
type user struct {
	list    *kept.List
	service string
	port    string
	limit   registry.Limit // of what is listed
	told    string         // the last problem of the Service that was logged
}

func (f *follower) add(u *user) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.users[u.list] = u
	if f.slices != nil {
		f.update(u, kept.AfterReconnect)
	}
}

func (f *follower) remove(l *kept.List) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.users, l)
}

// update delivers the endpoints of a Service. doubt is how long they are doubted if there are none.
func (f *follower) update(u *user, doubt time.Duration) {
	permits := func(addr string) bool { return f.r.opt.DNS.Reach.Check(u.list.Service(), addr, false) == "" }
	endpoints, wrong, err := endpointsOf(slices.Collect(maps.Values(f.slices.byService[u.service])), u.port, f.r.opt.Zone, permits)
	u.list.SetUnusable(wrong.count)
	if f.tell(u, cmp.Or(err, wrong.err())); err != nil {
		return
	}
	u.list.Set(u.limit.Cut(registry.Normalize(endpoints), u.service, f.r.log.Warn), doubt)
}

// tell logs why a Service, or a part of it, can't be used, once for as long as the reason stays the same.
func (f *follower) tell(u *user, problem error) {
	text := ""
	if problem != nil {
		text = problem.Error()
	}
	if text != "" && text != u.told {
		f.r.log.Warn("service can't be used as it is", "service", u.service, "namespace", f.namespace, "error", problem)
	}
	u.told = text
}

// run lists and watches until the end of the Registry. Pauses grow until a watch has worked for a while: an account may be
// allowed to list and not to watch.
func (f *follower) run() {
	pause := backoff.Backoff{Min: minPause, Max: maxPause}
	for f.r.tasks.Context().Err() == nil {
		began := time.Now()
		version, err := f.list()
		if err == nil {
			err = f.follow(version)
		}
		if f.r.tasks.Context().Err() != nil {
			return
		}
		if time.Since(began) > maxPause+f.r.opt.requestTimeout {
			pause.Reset()
		}
		if err != nil && !errors.Is(err, errGone) {
			f.fail(err)
		}
		pause.Wait(f.r.tasks.Context())
	}
}

// fail notes that the API server does not respond as it should, and logs a change.
func (f *follower) fail(err error) {
	if code := codeOf(err); f.contact.Fail(code, err) {
		f.r.log.Warn("the Kubernetes API does not respond as it should; the last known endpoints stay in use",
			"namespace", f.namespace, "code", code, "error", err)
	}
}

// succeed notes that a watch has begun, and logs a change.
func (f *follower) succeed() {
	if f.contact.Succeed().Err != nil {
		f.r.log.Info("the Kubernetes API responds again", "namespace", f.namespace)
	}
}

// condition returns whether the API server responds for the namespace.
func (f *follower) condition() registry.Condition {
	now := f.contact.Condition()
	if now.Err != nil {
		now.Err = fmt.Errorf("namespace %s: %w", f.namespace, now.Err)
	}
	return now
}

// list replaces all slices by those that the API server has, and returns the version from which changes follow.
func (f *follower) list() (version string, err error) {
	all := newSliceIndex()
	next := ""
	for {
		var page struct {
			Metadata struct {
				ResourceVersion string `json:"resourceVersion"`
				Continue        string `json:"continue"`
			} `json:"metadata"`
			Items []endpointSlice `json:"items"`
		}
		if err := f.page(next, &page); errors.Is(err, errLarge) && f.pageSize > 1 {
			f.pageSize /= 2
			continue
		} else if err != nil {
			return "", err
		}
		for i := range page.Items {
			all.put(&page.Items[i])
		}
		if len(all.byName) > maxSlices {
			return "", errTooMany
		}
		if version, next = page.Metadata.ResourceVersion, page.Metadata.Continue; next == "" {
			break
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.slices = all
	for _, u := range f.users {
		f.update(u, kept.AfterReconnect)
	}
	return version, nil
}

func (f *follower) page(from string, into any) error {
	ctx, cancel := context.WithTimeout(f.r.tasks.Context(), f.r.opt.requestTimeout)
	defer cancel()
	query := url.Values{"limit": {strconv.Itoa(f.pageSize)}}
	if from != "" {
		query.Set("continue", from)
	}
	body, err := f.get(ctx, query)
	if err != nil {
		return err
	}
	defer body.Close()
	return json.NewDecoder(&bounded{r: body, left: f.r.opt.maxMessage}).Decode(into)
}

// follow applies the changes after version until the watch ends. A watch that the API server ends in its time goes on from the
// last version that was seen.
func (f *follower) follow(version string) error {
	for {
		last, err := f.watch(version)
		if err != nil || last == version {
			return err
		}
		version = last
	}
}

// watch is one request of follow. It returns the last version that was seen. No error means that the API server has ended the
// watch, or has been silent for so long that it may be gone: the next request tells.
func (f *follower) watch(version string) (last string, err error) {
	seconds := int((watchTime + rand.N(watchTime)).Seconds())
	ctx, cancel := context.WithTimeout(f.r.tasks.Context(), time.Duration(seconds)*time.Second+f.r.opt.requestTimeout)
	defer cancel()
	body, err := f.get(ctx, url.Values{
		"watch": {"1"}, "resourceVersion": {version}, "allowWatchBookmarks": {"true"}, "timeoutSeconds": {strconv.Itoa(seconds)},
	})
	if err != nil {
		return "", err
	}
	defer body.Close()
	f.succeed()
	in := &bounded{r: body}
	events := json.NewDecoder(in)
	// A server that has gone may leave the connection open, behind a balancer.
	silent := time.AfterFunc(f.r.opt.silence, cancel)
	defer silent.Stop()
	for {
		in.left = f.r.opt.maxMessage
		var e event
		if err := events.Decode(&e); errors.Is(err, io.EOF) || err != nil && ctx.Err() != nil {
			return version, nil
		} else if err != nil {
			return "", err
		}
		if version, err = f.apply(&e); err != nil {
			return "", err
		}
		silent.Reset(f.r.opt.silence)
	}
}

// event is an event of a watch.
type event struct {
	Type   string          `json:"type"` // ADDED, MODIFIED, DELETED, BOOKMARK or ERROR
	Object json.RawMessage `json:"object"`
}

// apply applies an event, and returns its version.
func (f *follower) apply(e *event) (version string, err error) {
	var meta struct {
		Metadata struct {
			ResourceVersion string `json:"resourceVersion"`
		} `json:"metadata"`
		Code    int    `json:"code"`
		Message string `json:"message"`
	}
	if err := json.Unmarshal(e.Object, &meta); err != nil {
		return "", err
	}
	switch e.Type {
	case "ADDED", "MODIFIED", "DELETED":
		s := new(endpointSlice)
		if err := json.Unmarshal(e.Object, s); err != nil {
			return "", err
		}
		if err := f.change(s, e.Type == "DELETED"); err != nil {
			return "", err
		}
	case "BOOKMARK":
	case "ERROR":
		return "", statusError(meta.Code, meta.Message)
	default:
		return "", fmt.Errorf("an unknown event %.20q", e.Type)
	}
	return meta.Metadata.ResourceVersion, nil
}

// change applies another state of a slice, and updates the Services that it belongs to or belonged to.
func (f *follower) change(s *endpointSlice, deleted bool) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	before := f.slices.byName[s.Metadata.Name]
	if deleted {
		f.slices.remove(s.Metadata.Name)
	} else if before == nil && len(f.slices.byName) == maxSlices {
		return errTooMany
	} else {
		f.slices.put(s)
	}
	for _, u := range f.users {
		if u.service == s.service() || before != nil && u.service == before.service() {
			f.update(u, kept.AfterChange)
		}
	}
	return nil
}

// get requests the EndpointSlices of the namespace. The caller must close the body.
func (f *follower) get(ctx context.Context, query url.Values) (io.ReadCloser, error) {
	u := f.r.access.server.JoinPath("apis/discovery.k8s.io/v1/namespaces", url.PathEscape(f.namespace), "endpointslices")
	u.RawQuery = query.Encode()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/json")
	if err := f.r.access.authorize(req); err != nil {
		return nil, err
	}
	resp, err := f.r.http.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode == http.StatusOK {
		return resp.Body, nil
	}
	defer resp.Body.Close()
	var status struct {
		Message string `json:"message"`
	}
	_ = json.NewDecoder(io.LimitReader(resp.Body, 64<<10)).Decode(&status) // the code says enough
	return nil, statusError(resp.StatusCode, status.Message)
}

func statusError(code int, message string) error {
	if code == http.StatusGone {
		return errGone
	}
	return &refusal{code, message}
}

// refusal is the error of a request that the API server refuses.
type refusal struct {
	status  int
	message string
}

func (r *refusal) Error() string { return fmt.Sprintf("status %d: %.300s", r.status, r.message) }

// codeOf returns the code of the error of a request.
func codeOf(err error) string {
	var refused *refusal
	switch {
	case !errors.As(err, &refused):
		return registry.CodeOf(err, registry.CodeInvalid)
	case refused.status == http.StatusUnauthorized || refused.status == http.StatusForbidden:
		return registry.CodeDenied
	}
	return registry.CodeFailed
}

// bounded reads no more than left bytes.
type bounded struct {
	r    io.Reader
	left int
}

// Read implements io.Reader.
func (b *bounded) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, errLarge
	}
	n, err := b.r.Read(p[:min(len(p), b.left)])
	b.left -= n
	return n, err
}
