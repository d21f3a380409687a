package trace

import (
	"strings"
	"testing"
)

func TestHasMember(t *testing.T) {
	for _, c := range []struct {
		state string
		want  bool
	}{
		{"remora=h", true},
		{"a=b,remora=h", true},
		{"a=b ,\tremora=h , c=d", true},
		{"", false},
		{"a=b,,c=d", false},
		{"remora=hello", false},
		{"xremora=h", false},
		{"a=remora=h", false},
		{"remora=a", false},
	} {
		if got := HasMember([]byte(c.state), "remora=h"); got != c.want {
			t.Errorf("%q: %v", c.state, got)
		}
	}
}

func TestState(t *testing.T) {
	many := "a=b" + strings.Repeat(",a=b", 30)
	for _, c := range []struct {
		name  string
		lines []string
		want  string
	}{
		{"no other", nil, ""},
		{"in front", []string{"a=b,c=d"}, ",a=b,c=d"},
		{"several lines", []string{"a=b", "", "c=d"}, ",a=b,c=d"},
		{"white space and empty members", []string{" a=b ,,\tc=d, "}, ",a=b,c=d"},
		{"the same key", []string{"a=b,remora=x,c=d", "remora=h"}, ",a=b,c=d"},
		{"other keys", []string{"remora2=x,xremora=h,remora"}, ",remora2=x,xremora=h,remora"},
		{"31 others", []string{many}, "," + many},
		{"32 others", []string{many + ",z=z"}, "," + many},
		{"32 others in two lines", []string{many, "z=z"}, "," + many},
	} {
		s := State{Text: []byte("left over")}
		for range 2 {
			s.Begin("remora=h")
			for _, line := range c.lines {
				s.Add([]byte(line))
			}
			if want := "remora=h" + c.want; string(s.Text) != want {
				t.Errorf("%s: got %q, want %q", c.name, s.Text, want)
			}
		}
	}
}
