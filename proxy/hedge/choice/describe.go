package choice

import (
	"fmt"
	"time"
)

// Describe says in one line what was chosen, and why. on reports whether hedges are sent. It returns "" if nothing is
// known.
func (c *Choice) Describe(on bool) string {
	hedges, come := "hedges", "come"
	if !on {
		hedges, come = "would hedge", "would come"
	}
	switch {
	case !c.Known():
		return ""
	case !c.Gains() && c.Share == 0:
		return fmt.Sprintf("%s only stuck requests: no delay would make the slowest 1%% a tenth shorter", hedges)
	case !c.Gains():
		return fmt.Sprintf("%s only after %s: no delay would make the slowest 1%% a tenth shorter", hedges, milliseconds(c.Delay))
	}
	some := ""
	if c.Share < 1 {
		some = fmt.Sprintf(", of which the budget pays for %.0f%%", 100*c.Share)
	}
	return fmt.Sprintf("%s after %s: %.2g%% are later%s, and nine of ten second responses then %s within %s",
		hedges, milliseconds(c.Delay), 100*c.Late, some, come, milliseconds(c.Second))
}

func milliseconds(d time.Duration) string {
	if d >= 10*time.Millisecond {
		return fmt.Sprintf("%d ms", d.Round(time.Millisecond).Milliseconds())
	}
	return fmt.Sprintf("%.2g ms", float64(d)/float64(time.Millisecond))
}
