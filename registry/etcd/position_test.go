package etcd

import (
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/stats"
)

func headAt(cluster, term uint64, revision int64) *pb.ResponseHeader {
	return &pb.ResponseHeader{ClusterId: cluster, RaftTerm: term, Revision: revision}
}

// TestTracker follows the position of an etcd over responses, of which some come late.
func TestTracker(t *testing.T) {
	var tr tracker
	tr.init()
	first := tr.mark()
	if after, lost := tr.answered(first, headAt(1, 2, 10), false); lost || after.floor != (position{1, 2, 10}) {
		t.Errorf("the first response: lost %t, %+v", lost, after.floor)
	}
	before := tr.mark()
	tr.saw(before.epoch, position{1, 3, 9})
	if now := tr.mark(); now.floor != (position{1, 3, 10}) {
		t.Errorf("an event: %+v", now.floor)
	}
	if after, lost := tr.answered(first, headAt(1, 1, 5), false); lost || after.floor != (position{1, 3, 10}) {
		t.Errorf("a late response: lost %t, %+v", lost, after.floor)
	}
	now := tr.mark()
	after, lost := tr.answered(now, headAt(2, 1, 3), false)
	if !lost || after.floor != (position{2, 1, 3}) || after.epoch != now.epoch+1 || after.lost == now.lost {
		t.Errorf("another cluster: lost %t, %+v", lost, after)
	}
	select {
	case <-now.lost:
	default:
		t.Error("the loss is not announced")
	}
	if again, lost := tr.answered(now, headAt(1, 3, 11), false); lost || again.floor != after.floor || again.epoch != after.epoch {
		t.Errorf("a response of the former etcd: lost %t, %+v", lost, again)
	}
	tr.saw(now.epoch, position{1, 3, 12})
	if tr.mark().floor != after.floor {
		t.Errorf("an event of the former etcd: %+v", tr.mark().floor)
	}
	if after, lost := tr.answered(tr.mark(), headAt(2, 1, 4), true); !lost || after.floor != (position{2, 1, 4}) {
		t.Errorf("keys were rewritten: lost %t, %+v", lost, after.floor)
	}
}

// TestDoubts: a response from behind is doubted once.
func TestDoubts(t *testing.T) {
	behind := headAt(1, 2, 9)
	for name, c := range map[string]struct {
		responses []*pb.ResponseHeader // before, each to a request after the one before
		head      *pb.ResponseHeader
		want      bool
	}{
		"behind":             {nil, behind, true},
		"behind, later term": {nil, headAt(1, 3, 9), true},
		"behind again":       {[]*pb.ResponseHeader{behind}, behind, false},
		"behind, then not":   {[]*pb.ResponseHeader{behind, headAt(1, 2, 10)}, behind, true},
		"the same":           {nil, headAt(1, 2, 10), false},
		"ahead":              {nil, headAt(1, 2, 11), false},
		"an earlier term":    {nil, headAt(1, 1, 9), false},
		"another cluster":    {nil, headAt(2, 2, 9), false},
	} {
		var tr tracker
		tr.init()
		tr.answered(tr.mark(), headAt(1, 2, 10), false)
		for _, h := range c.responses {
			tr.doubts(tr.mark(), h)
		}
		if got := tr.doubts(tr.mark(), c.head); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
	var tr tracker
	tr.init()
	tr.answered(tr.mark(), headAt(1, 2, 10), false)
	early := tr.mark()
	tr.doubts(early, behind)
	if !tr.doubts(early, behind) {
		t.Error("a response to a request from before the doubt confirms it")
	}
	tr.answered(tr.mark(), headAt(2, 1, 1), false)
	if tr.doubts(early, behind) {
		t.Error("a response of the former etcd is doubted")
	}
}

// TestBreaks: only the ends of connections count.
func TestBreaks(t *testing.T) {
	var b breaks
	for i, s := range []stats.ConnStats{&stats.ConnBegin{}, &stats.ConnEnd{}, &stats.ConnEnd{}} {
		if b.HandleConn(t.Context(), s); b.Load() != uint64(i) {
			t.Errorf("%d after %d events", b.Load(), i+1)
		}
	}
}
