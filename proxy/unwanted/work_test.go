package unwanted

import (
	"testing"
	"time"
)

const ms = time.Millisecond

// learned returns Work that knows that the application works on for left, since time 0.
func learned(mode Mode, left time.Duration) *Work {
	w := &Work{Mode: mode}
	for range model.enough {
		w.Finished(0, left, Overtaken, false)
		w.Finished(0, 2*left, Overtaken, true)
	}
	return w
}

// few returns Work that knows of too few attempts.
func few(left time.Duration) *Work {
	w := &Work{Mode: Auto}
	for range model.enough - 1 {
		w.Finished(0, left, Overtaken, false)
	}
	return w
}

// almost returns Work that knows that the application works on for less than left, by less than 1 ns in the mean.
func almost(left time.Duration) *Work {
	w := few(left)
	w.Finished(0, left-1, Overtaken, false)
	return w
}

// lost is an attempt of the n-th request that was sent 5 ms ago, and that another attempt has overtaken.
func lost(n int) *Attempt {
	return &Attempt{Kind: Overtaken, Since: 5 * ms, Connect: ms / 10, Requests: uint64(n)}
}

// closed returns how many of n attempts are closed, one each gap, after every requests each.
func closed(w *Work, n, every int, gap time.Duration) (closed int) {
	for i := range n {
		now := time.Second + time.Duration(i)*gap
		for range model.enough {
			w.Finished(now, 20*ms, Overtaken, false)
		}
		if w.Decide(now, lost(every*(i+1))).Close {
			closed++
		}
	}
	return closed
}

// TestDecision: a connection closes if the application would likely work on for longer than a connect costs.
func TestDecision(t *testing.T) {
	for name, c := range map[string]struct {
		work    *Work
		attempt func(a *Attempt)
		want    Decision
	}{
		"never":                              {learned(Finish, 20*ms), func(*Attempt) {}, Decision{}},
		"long work":                          {learned(Auto, 20*ms), func(*Attempt) {}, Decision{Close: true, Hold: 20 * ms}},
		"short work":                         {learned(Auto, ms/2), func(*Attempt) {}, Decision{}},
		"a slow connect":                     {learned(Auto, 20*ms), func(a *Attempt) { a.Connect = 15 * ms }, Decision{}},
		"as short as a connect":              {learned(Auto, 20*ms), func(a *Attempt) { a.Connect = 19 * ms / 2 }, Decision{Close: true, Hold: 20 * ms}},
		"shorter than a connect by 1 ns":     {almost(20 * ms), func(a *Attempt) { a.Connect = 19 * ms / 2 }, Decision{}},
		"too little is known":                {few(20 * ms), func(*Attempt) {}, Decision{}},
		"nothing is known":                   {&Work{Mode: Auto}, func(*Attempt) {}, Decision{}},
		"only of others":                     {learned(Auto, 20*ms), func(a *Attempt) { a.Kind = Needless }, Decision{}},
		"always: short work":                 {learned(Close, ms/2), func(*Attempt) {}, Decision{Close: true, Hold: ms / 2}},
		"always: nothing is known":           {&Work{Mode: Close}, func(*Attempt) {}, Decision{Close: true, Hold: 5 * ms}},
		"a silent endpoint":                  {learned(Auto, 20*ms), func(a *Attempt) { a.Silent = true }, Decision{Close: true, Hold: 40 * ms}},
		"a silent endpoint, the first":       {&Work{Mode: Auto}, func(a *Attempt) { a.Silent = true }, Decision{Close: true, Hold: 5 * ms}},
		"a silent endpoint, soon":            {&Work{Mode: Auto}, func(a *Attempt) { a.Silent, a.Since = true, ms/2 }, Decision{}},
		"the last at a silent endpoint":      {learned(Auto, 20*ms), func(a *Attempt) { a.Silent, a.Last = true, true }, Decision{}},
		"always: the last at a silent one":   {learned(Close, 20*ms), func(a *Attempt) { a.Silent, a.Last = true, true }, Decision{}},
		"the last at an endpoint that works": {learned(Auto, 20*ms), func(a *Attempt) { a.Last = true }, Decision{Close: true, Hold: 20 * ms}},
	} {
		t.Run(name, func(t *testing.T) {
			a := lost(1000)
			c.attempt(a)
			if d := c.work.Decide(time.Second, a); d != c.want {
				t.Errorf("%+v, want %+v", d, c.want)
			}
		})
	}
}

// TestSomeFinish: one attempt in model.every is left to finish, so that the sidecar learns of it.
func TestSomeFinish(t *testing.T) {
	for _, mode := range []Mode{Auto, Close} {
		n := 100 * model.every
		if got, want := closed(learned(mode, 20*ms), n, 100, 100*ms), n-100; got != want {
			t.Errorf("mode %d: %d of %d are closed, want %d", mode, got, n, want)
		}
	}
}

// TestBudget: at most a share of the requests costs a connection, so many in a second, and fewer at once.
func TestBudget(t *testing.T) {
	for name, c := range map[string]struct {
		mode        Mode
		loops       int
		n, every    int
		gap         time.Duration
		least, most int
	}{
		"each request":               {Auto, 1, 1000, 1, 20 * ms, 495, 505},
		"each fourth request":        {Auto, 1, 1000, 4, 20 * ms, 875, 875},
		"all at once":                {Auto, 1, 1000, 100, 0, 50, 50},
		"many in a second":           {Auto, 1, 1000, 100, ms, 145, 155},
		"many, on four loops":        {Auto, 4, 1000, 100, ms, 45, 55},
		"without a budget, at once":  {Close, 1, 1000, 0, 0, 875, 875},
		"without a budget, all busy": {Close, 1, 1000, 1, ms, 875, 875},
	} {
		t.Run(name, func(t *testing.T) {
			w := &Work{Mode: c.mode, Loops: c.loops}
			if got := closed(w, c.n, c.every, c.gap); got < c.least || got > c.most {
				t.Errorf("%d of %d are closed, want %d to %d", got, c.n, c.least, c.most)
			}
		})
	}
}

// TestHolds: closed attempts are held for as long as those that finished took, the short ones and the long ones.
func TestHolds(t *testing.T) {
	w := &Work{Mode: Close}
	sum := time.Duration(0)
	for i := range 2 * model.kept { // the first half is forgotten
		left := time.Duration(i) * ms
		w.Finished(0, left, Overtaken, false)
		if i >= model.kept {
			sum += left
		}
	}
	held, n := time.Duration(0), 0
	shortest, longest := time.Hour, time.Duration(0)
	for n < model.kept {
		if d := w.Decide(time.Second, lost(1000)); d.Close {
			held, n = held+d.Hold, n+1
			shortest, longest = min(shortest, d.Hold), max(longest, d.Hold)
		}
	}
	if held != sum {
		t.Errorf("all are held for %v, want %v", held, sum)
	}
	if first, last := time.Duration(model.kept)*ms, time.Duration(2*model.kept-1)*ms; shortest != first || longest != last {
		t.Errorf("they are held for %v to %v, want %v to %v", shortest, longest, first, last)
	}
}

// TestFreshness: what was long ago does not count. Long work counts for longer.
func TestFreshness(t *testing.T) {
	for _, c := range []struct {
		left, age time.Duration
		want      bool
	}{
		{20 * ms, 10*time.Second + 160*ms, true},
		{20 * ms, 10*time.Second + 160*ms + 1, false},
		{10 * time.Second, 80 * time.Second, true},
		{10 * time.Second, 100 * time.Second, false},
	} {
		w := learned(Auto, c.left)
		if got := w.Decide(c.age, lost(1000)).Close; got != c.want {
			t.Errorf("work of %v, %v ago: closed %t, want %t", c.left, c.age, got, c.want)
		}
	}
}
