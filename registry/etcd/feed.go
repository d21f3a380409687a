package etcd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
)

// feed is a gRPC stream by which etcd sends the changes of many watches. The watches of etcd's own client have a goroutine
// and buffers each; those of a feed share the goroutine that reads the stream.
//
// A feed never resumes on another connection: at its end all its watches break. It keeps the token with which it began, and
// etcd refuses new watches on it once that token is invalid. The watches that it has go on.
//
// One watch opens at a time, as with etcd's own client: a refusal does not say which watch is refused.
type feed struct {
	of      *watches
	cancel  context.CancelCauseFunc // ends the stream
	silence *time.Timer             // ends the stream if nothing comes while a watch opens

	// The goroutine of watches owns these.
	asked      int              // signs of life that etcd was asked for since its last response
	answers    uint64           // that the Registry had when asked became 1
	givesSigns bool             // of life; a proxy of etcd may not
	opening    []*watch         // etcd has the request for the first, or gets it; nil for a watch that has left meanwhile
	open       map[int64]*watch // by etcd's number, which is in watch.number too

	mu        sync.Mutex
	stream    pb.Watch_WatchClient // nil until it has begun
	unsent    []*pb.WatchRequest   // at most one to open a watch, one for each watch that has left, and maxAsked for signs of life
	isSending bool                 // a task sends; it stays so after an error
}

// arrival is what a feed has brought: a response, or its end.
type arrival struct {
	of   *feed
	resp *pb.WatchResponse // nil at the end
	err  error             // why the stream has ended
}

var (
	errSilent   = errors.New("etcd has not confirmed a watch in time")
	errLifeless = errors.New("etcd responds, but not on this stream")
	errUnused   = errors.New("the stream has no watches")
)

// newFeed begins a stream, for a watch that opens. The client must be ready.
func newFeed(of *watches) *feed {
	// A member of etcd that lost the others ends the stream, which would bring no events.
	ctx, cancel := context.WithCancelCause(clientv3.WithRequireLeader(of.r.tasks.Context()))
	f := &feed{of: of, cancel: cancel, open: make(map[int64]*watch)}
	of.feeds[f] = struct{}{}
	f.silence = time.AfterFunc(requestTimeout, func() { cancel(errSilent) })
	of.r.tasks.Go(func() {
		err := f.read(ctx)
		f.bring(arrival{of: f, err: cmp.Or(context.Cause(ctx), err)})
	})
	return f
}

// read reads the stream until its end.
func (f *feed) read(ctx context.Context) error {
	client := pb.NewWatchClient(f.of.r.client.ActiveConnection())
	stream, err := client.Watch(ctx, grpc.MaxCallRecvMsgSize(math.MaxInt32)) // as etcd's own client
	if err != nil {
		return err
	}
	f.begin(stream)
	for {
		resp, err := stream.Recv()
		if err != nil {
			return err
		}
		f.bring(arrival{of: f, resp: resp})
	}
}

// bring waits until the goroutine of watches takes an arrival. gRPC stops etcd meanwhile.
func (f *feed) bring(a arrival) {
	select {
	case f.of.arrivals <- a:
	case <-f.of.r.tasks.Context().Done():
	}
}

// add opens a watch, after those before it.
func (f *feed) add(w *watch) {
	f.opening = append(f.opening, w)
	if len(f.opening) == 1 {
		f.request(w)
	}
}

// request asks etcd to open the first watch.
func (f *feed) request(w *watch) {
	f.silence.Reset(requestTimeout)
	f.push(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: &pb.WatchCreateRequest{
		Key: []byte(w.key), RangeEnd: []byte(w.end), StartRevision: w.from, ProgressNotify: true,
	}}})
}

// remove removes a watch. etcd forgets it. The stream ends with its last watch.
func (f *feed) remove(w *watch) {
	if f.open[w.number] == w {
		delete(f.open, w.number)
		f.forget(w.number)
	} else if i := slices.Index(f.opening, w); i == 0 {
		f.opening[0] = nil
	} else if i > 0 {
		f.opening = slices.Delete(f.opening, i, i+1)
	}
	f.closeUnused()
}

// forget asks etcd to end a watch.
func (f *feed) forget(number int64) {
	f.push(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CancelRequest{CancelRequest: &pb.WatchCancelRequest{WatchId: number}}})
}

// closeUnused ends a stream without watches. It reports whether there are none.
func (f *feed) closeUnused() bool {
	isUnused := len(f.open) == 0 && !slices.ContainsFunc(f.opening, func(w *watch) bool { return w != nil })
	if isUnused {
		f.close(errUnused)
	}
	return isUnused
}

// close ends the stream.
func (f *feed) close(reason error) {
	f.silence.Stop()
	delete(f.of.feeds, f)
	f.of.leave(f)
	f.opening, f.open = nil, nil
	f.cancel(reason)
}

// take handles what the stream has brought.
func (f *feed) take(a arrival) {
	f.asked = 0
	switch {
	case f.open == nil: // closed meanwhile
	case a.resp == nil:
		f.breakAll(a.err)
	case a.resp.Created:
		f.confirm(a.resp)
	case a.resp.WatchId == clientv3.InvalidWatchID && !a.resp.Canceled:
		f.givesSigns = true
	default:
		f.pass(a.resp)
	}
}

// maxAsked is how many signs of life may be missing.
const maxAsked = 2

// ask asks for a sign of life. It ends a stream that has given none for a while, if etcd has responded otherwise meanwhile: then the
// member of etcd that has the stream is frozen or cut off, and others are not. A stream that has never given a sign is left alone.
func (f *feed) ask() {
	answers := f.of.r.stats.answers.Load()
	switch {
	case f.asked < maxAsked:
		if f.asked++; f.asked == 1 {
			f.answers = answers
		}
		f.push(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_ProgressRequest{ProgressRequest: &pb.WatchProgressRequest{}}})
	case f.givesSigns && answers > f.answers:
		f.cancel(errLifeless)
	}
}

// breakAll ends the stream, and breaks all its watches.
func (f *feed) breakAll(reason error) {
	opening, open := f.opening, f.open
	f.close(reason)
	for _, w := range opening {
		if w != nil {
			w.broke(reason)
		}
	}
	for _, w := range open {
		w.broke(reason)
	}
}

// confirm handles etcd's response to the request for the first opening watch.
func (f *feed) confirm(resp *pb.WatchResponse) {
	if len(f.opening) == 0 {
		return // etcd confirms what nobody has asked for
	}
	w := f.opening[0]
	f.opening = f.opening[1:]
	refused := reasonOf(resp)
	switch {
	case refused == nil && w == nil:
		f.forget(resp.WatchId)
	case refused == nil:
		w.number = resp.WatchId
		f.open[w.number] = w
		w.opened()
	default:
		if w != nil {
			w.broke(refused)
		}
		f.yield()
	}
	if f.open != nil && !f.closeUnused() {
		f.openNext()
	}
}

// yield leaves the watches that are not open yet to another stream, which has a new token.
func (f *feed) yield() {
	f.of.leave(f)
	rest := f.opening
	f.opening = nil
	for _, w := range rest {
		f.of.open(w)
	}
}

// openNext asks etcd to open the next watch.
func (f *feed) openNext() {
	if len(f.opening) == 0 {
		f.silence.Stop()
		return
	}
	f.request(f.opening[0])
}

// pass passes a response on to its watch.
func (f *feed) pass(resp *pb.WatchResponse) {
	if len(f.opening) > 0 {
		f.silence.Reset(requestTimeout)
	}
	w := f.open[resp.WatchId]
	if w == nil {
		return // it has left, and etcd had not known yet
	}
	reason := reasonOf(resp)
	if reason == nil {
		w.changed(resp)
		return
	}
	delete(f.open, w.number)
	if resp.CompactRevision != 0 { // etcd keeps the watch
		f.forget(w.number)
	}
	w.broke(reason)
	f.closeUnused()
}

// reasonOf returns why etcd has ended or refused a watch; nil means that it has not.
func reasonOf(resp *pb.WatchResponse) error {
	switch {
	case resp.CompactRevision != 0:
		return fmt.Errorf("the revision was compacted, up to %d", resp.CompactRevision)
	case resp.Canceled || resp.WatchId == clientv3.InvalidWatchID:
		return fmt.Errorf("etcd has ended the watch: %s", cmp.Or(resp.CancelReason, "for no reason"))
	}
	return nil
}

// begin begins to send requests.
func (f *feed) begin(stream pb.Watch_WatchClient) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stream = stream
	f.startSending()
}

// push sends a request after those before it. It does not wait: gRPC does while etcd does not read.
func (f *feed) push(req *pb.WatchRequest) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.unsent = append(f.unsent, req)
	f.startSending()
}

// startSending starts a task that sends, if there is something to send. f.mu is locked.
func (f *feed) startSending() {
	if f.stream != nil && !f.isSending && len(f.unsent) > 0 {
		f.isSending = f.of.r.tasks.Go(f.send)
	}
}

// send sends what is unsent.
func (f *feed) send() {
	for req := f.next(); req != nil; req = f.next() {
		if err := f.stream.Send(req); err != nil {
			return // the reader of the stream knows why
		}
	}
}

// next returns the next request to send, or nil.
func (f *feed) next() *pb.WatchRequest {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.unsent) == 0 {
		f.unsent, f.isSending = nil, false
		return nil
	}
	req := f.unsent[0]
	f.unsent = f.unsent[1:]
	return req
}
