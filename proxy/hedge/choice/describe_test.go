package choice

import (
	"testing"
	"time"
)

func TestDescribe(t *testing.T) {
	gains := Choice{Delay: 16384 * time.Microsecond, Share: 1, Late: .0513, Second: 8960 * time.Microsecond, With: 30 * ms, Without: 55 * ms}
	part := gains
	part.Share = .91
	for _, c := range []struct {
		choice Choice
		on     bool
		want   string
	}{
		{Choice{}, true, ""},
		{gains, true, "hedges after 16 ms: 5.1% are later, and nine of ten second responses then come within 9 ms"},
		{Choice{Delay: 1, Share: 1, With: ms, Without: ms}, true, "hedges only after 1e-06 ms: no delay would make the slowest 1% a tenth shorter"},
		{Choice{Delay: 10 * ms, Share: 1, With: ms, Without: ms}, true, "hedges only after 10 ms: no delay would make the slowest 1% a tenth shorter"},
		{Choice{Delay: 10500 * time.Microsecond, Share: 1, With: ms, Without: ms}, true, "hedges only after 11 ms: no delay would make the slowest 1% a tenth shorter"},
		{Choice{Delay: 9949 * time.Microsecond, Share: 1, With: ms, Without: ms}, true, "hedges only after 9.9 ms: no delay would make the slowest 1% a tenth shorter"},
		{gains, false, "would hedge after 16 ms: 5.1% are later, and nine of ten second responses then would come within 9 ms"},
		{part, true, "hedges after 16 ms: 5.1% are later, of which the budget pays for 91%, and nine of ten second responses then come within 9 ms"},
		{Choice{Delay: 2 * ms, Share: 1, With: ms, Without: ms}, true, "hedges only after 2 ms: no delay would make the slowest 1% a tenth shorter"},
		{Choice{Delay: 50 * ms, Late: .1, With: ms, Without: ms}, false, "would hedge only stuck requests: no delay would make the slowest 1% a tenth shorter"},
	} {
		if got := c.choice.Describe(c.on); got != c.want {
			t.Errorf("got  %s\nwant %s", got, c.want)
		}
	}
}
