package probe

import (
	"testing"
	"time"
)

const ms = time.Millisecond

// addAll adds answers of the named endpoints.
func (p *Pool[E]) addAll(now time.Duration, names []E, of ...Answer[E]) {
	for i, a := range of {
		a.From, a.At = names[i], now
		if a.Weight == 0 {
			a.Weight = 1
		}
		p.Add(a)
	}
}

func anyEndpoint(string) bool { return true }

var abc = []string{"a", "b", "c", "d"}

// TestTake: which endpoint a pick gets.
func TestTake(t *testing.T) {
	for _, c := range []struct {
		name    string
		answers []Answer[string]
		usable  func(string) bool
		want    string
	}{
		{"the least latency of the cold ones", []Answer[string]{{Latency: 30 * ms}, {Latency: 10 * ms}, {Latency: 20 * ms}}, anyEndpoint, "b"},
		{"a cold one, though slower than a hot one", []Answer[string]{{Latency: 30 * ms}, {Latency: 30 * ms}, {Pending: 9, Latency: ms}}, anyEndpoint, "a"},
		{"an idle one before a busy one of the same latency", []Answer[string]{{Pending: 2, Latency: 10 * ms}, {Pending: 1, Latency: 10 * ms}, {Pending: 2, Latency: 10 * ms}}, anyEndpoint, "b"},
		{"the most weight of equally busy ones", []Answer[string]{{Pending: 2, Latency: 10 * ms}, {Pending: 2, Latency: 10 * ms, Weight: 3}}, anyEndpoint, "b"},
		{"not one that can't be picked", []Answer[string]{{Latency: 30 * ms}, {Latency: 10 * ms}}, func(e string) bool { return e == "a" }, "a"},
		{"an unknown latency counts as the median", []Answer[string]{{Latency: 20 * ms}, {Latency: 20 * ms}, {Latency: 10 * ms}, {}}, anyEndpoint, "c"},
		{"none", []Answer[string]{{Latency: ms}}, func(string) bool { return false }, ""},
	} {
		var p Pool[string]
		for range recentMost { // usually nothing is pending
			p.Add(Answer[string]{From: "z", Weight: 1, Latency: 20 * ms})
		}
		p.Forget("z")
		p.addAll(0, abc, c.answers...)
		if got, ok := p.Take(c.usable); got != c.want || ok != (c.want != "") {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
}

// TestUsualLoad: a load that answers usually have is not hot.
func TestUsualLoad(t *testing.T) {
	var p Pool[string]
	for range recentMost {
		p.addAll(0, abc, Answer[string]{Pending: 5, Latency: 10 * ms})
	}
	p.addAll(0, abc, Answer[string]{Pending: 5, Latency: 10 * ms}, Answer[string]{Pending: 4, Latency: 50 * ms})
	if got, _ := p.Take(anyEndpoint); got != "a" {
		t.Errorf("got %q, want the quicker one of two cold ones", got)
	}
}

// TestOldAnswer: the last answer, too, is of no use once it is too old.
func TestOldAnswer(t *testing.T) {
	for age, want := range map[time.Duration]bool{5*ms - 1: true, 5 * ms: false} {
		var p Pool[string]
		p.addAll(0, abc, Answer[string]{Latency: 10 * ms})
		if got := p.Enough(age, 1); got != want {
			t.Errorf("after %v: %t", age, got)
		}
	}
}

// TestHotAmongHot: if all are hot, the least load counts, not the latency.
func TestHotAmongHot(t *testing.T) {
	var p Pool[string]
	for range recentMost {
		p.addAll(0, abc, Answer[string]{Latency: ms})
	}
	p.addAll(0, abc, Answer[string]{Pending: 5, Latency: ms}, Answer[string]{Pending: 4, Latency: 50 * ms})
	if got, _ := p.Take(anyEndpoint); got != "b" {
		t.Errorf("got %q", got)
	}
}

// TestRemoval: answers leave the pool when they are old, used, the worst, or replaced.
func TestRemoval(t *testing.T) {
	var p Pool[string]
	fill := func(now time.Duration) {
		p.addAll(now, abc, Answer[string]{Latency: 10 * ms}, Answer[string]{Latency: 20 * ms}, Answer[string]{Latency: 30 * ms}, Answer[string]{Latency: 40 * ms})
	}
	fill(0)
	fill(0)
	if n := len(p.answers); n != 4 {
		t.Errorf("%d answers of 4 endpoints", n)
	}
	if !p.Enough(14*ms, 4) || p.Enough(15*ms, 4) { // the median of 10, 20, 30 and 40 is 30 ms
		t.Errorf("%d answers are left after half of the median", len(p.answers))
	}
	p.addAll(16*ms, abc, Answer[string]{Latency: ms}, Answer[string]{Latency: ms})
	if p.Enough(16*ms, 3) || !p.Enough(16*ms, 2) {
		t.Error("two answers are enough of three endpoints, or not of two")
	}
	fill(time.Second)
	// d is the worst, and three are enough. The requests at a and b make these hot. Each serves two picks.
	for i, want := range []string{"a", "b", "c", "a", "b", "c", ""} {
		if got, _ := p.Take(anyEndpoint); got != want {
			t.Errorf("pick %d: %q, want %q", i+1, got, want)
		}
	}
	for i := range 2 * poolMost {
		q := Pool[int]{}
		for e := range i {
			q.Add(Answer[int]{From: e, Weight: 1, Latency: ms})
		}
		if n := len(q.answers); n != min(i, poolMost) {
			t.Errorf("%d answers after %d", n, i)
		}
	}
}

// TestForget: the answer of an endpoint that has left the set is no more.
func TestForget(t *testing.T) {
	var p Pool[string]
	p.addAll(0, abc, Answer[string]{Latency: ms})
	p.Forget("b")
	p.Forget("a")
	if e, ok := p.Take(anyEndpoint); ok {
		t.Errorf("took %q", e)
	}
}

// TestNextRequest: what counts is the latency of the next request, which finds one more than the load.
func TestNextRequest(t *testing.T) {
	var p Pool[string]
	for range recentMost {
		p.addAll(0, abc, Answer[string]{Pending: 5, Latency: 20 * ms})
	}
	p.addAll(0, abc, Answer[string]{Latency: 30 * ms}, Answer[string]{Pending: 1, Latency: 16 * ms})
	if got, _ := p.Take(anyEndpoint); got != "a" {
		t.Errorf("got %q, want that with 30 ms for the next, not 32", got)
	}
}

// TestFullPool: a full pool drops its oldest answer. It may count the hottest of all as cold.
func TestFullPool(t *testing.T) {
	p := Pool[int]{Rules: Rules{Enough: 1, Uses: 1, Hot: 1, Life: .5}}
	for i := range 3 * recentMost {
		p.Add(Answer[int]{From: i, Weight: 1, Latency: 10 * ms, At: time.Duration(i)})
		for k := range p.answers {
			if want := i + 1 - len(p.answers) + k; p.answers[k].From != want {
				t.Fatalf("answer %d is of endpoint %d, want %d", k, p.answers[k].From, want)
			}
		}
	}
	if len(p.answers) != poolMost {
		t.Errorf("%d answers, want %d", len(p.answers), poolMost)
	}
}
