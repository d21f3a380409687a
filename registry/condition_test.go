package registry

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"testing"
	"time"
)

// TestJoin: a source of several parts is up if all are. It is up since the last part came back, and down since the first
// part was lost.
func TestJoin(t *testing.T) {
	at := func(second int64) time.Time { return time.Unix(second, 0) }
	bad := errors.New("bad")
	for _, c := range []struct {
		name  string
		parts []Condition
		want  Condition
	}{
		{"no part", nil, Condition{Up: true}},
		{"all are up", []Condition{{Up: true, Since: at(2), Services: 1}, {Up: true, Since: at(3)}, {Up: true, Since: at(1), Services: 2}}, Condition{Up: true, Since: at(3), Services: 3}},
		{"some are down", []Condition{
			{Up: true, Since: at(9)}, {Since: at(5), Code: CodeDenied, Err: bad, Kept: 1}, {Since: at(4), Code: CodeFailed, Err: errors.New("other"), Kept: 2}, {Up: true, Since: at(1)},
		}, Condition{Since: at(4), Code: CodeDenied, Err: bad, Kept: 3}},
		{"one has not responded yet", []Condition{{Since: at(7)}, {Up: true, Since: at(8)}}, Condition{Since: at(7)}},
	} {
		if got := Join(c.parts...); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}

// TestContact: the state changes with the first failure and the first success. Each code is news once in an outage,
// whatever the text.
func TestContact(t *testing.T) {
	c := NewContact()
	if now := c.Condition(); now.Up || now.Code != "" || now.Since.IsZero() {
		t.Errorf("before the first response: %+v", now)
	}
	if before := c.Succeed(); before.Up || before.Err != nil {
		t.Errorf("before the first response: %+v", before)
	}
	up := c.Condition()
	if c.Succeed(); c.Condition() != up || !up.Up {
		t.Errorf("%+v, and after another response %+v", up, c.Condition())
	}
	for outage := range 2 {
		news := ""
		var began time.Time
		for i, code := range []string{CodeUnreachable, CodeUnreachable, CodeDenied, CodeUnreachable, CodeDenied} {
			err := fmt.Errorf("failure %d", i)
			if c.Fail(code, err) {
				news += code + " "
			}
			now := c.Condition()
			if i == 0 {
				began = now.Since
			}
			if now.Up || now.Code != code || now.Err != err || now.Since != began {
				t.Errorf("outage %d: %+v after %s", outage, now, code)
			}
		}
		if news != "unreachable denied " {
			t.Errorf("outage %d: news are %q", outage, news)
		}
		if before := c.Succeed(); before.Code != CodeDenied || !c.Condition().Up || c.Condition().Code != "" {
			t.Errorf("outage %d: %+v, and before %+v", outage, c.Condition(), before)
		}
	}
}

// TestDoubts: the endpoints of all watches are counted, until each believes its list again or ends.
func TestDoubts(t *testing.T) {
	var d Doubts
	one, other := NewDoubt(&d), NewDoubt(&d)
	for i, step := range []struct {
		do             func()
		services, kept int
	}{
		{func() {}, 0, 0},
		{func() { one.Set(3) }, 1, 3},
		{func() { one.Set(2); other.Set(5) }, 2, 7},
		{func() { one.Set(0) }, 1, 5},
		{func() { other.End(); other.End() }, 0, 0},
		{func() { other.Set(4) }, 0, 0}, // it has ended
		{func() { one.Set(1) }, 1, 1},
	} {
		step.do()
		var now Condition
		if d.Add(&now); now.Doubted != step.services || now.Kept != step.kept {
			t.Errorf("step %d: %+v, want %d services and %d endpoints", i, now, step.services, step.kept)
		}
	}
	NewDoubt(nil).Set(1)
}

// TestCodeOf: errors of the system have codes.
func TestCodeOf(t *testing.T) {
	_, missing := os.Open("/nowhere/at/all")
	for want, err := range map[string]error{
		CodeMissing: missing, CodeDenied: fs.ErrPermission, CodeUnreachable: fmt.Errorf("get: %w", context.DeadlineExceeded), "other": errors.New("x"),
	} {
		if got := CodeOf(err, "other"); got != want {
			t.Errorf("%v: %s, want %s", err, got, want)
		}
	}
}
