package budget

import "time"

// lastSecond estimates the sum of the values added within the last second: the current clock
// second, and the fraction of the previous one that is less than a second ago.
type lastSecond struct {
	second    int64
	cur, prev float64
}

func (l *lastSecond) add(now time.Duration, x float64) {
	switch s := int64(now / time.Second); s - l.second {
	case 0:
	case 1:
		l.second, l.cur, l.prev = s, 0, l.cur
	default:
		l.second, l.cur, l.prev = s, 0, 0
	}
	l.cur += x
}

func (l *lastSecond) perSecond(now time.Duration) float64 {
	elapsed := float64(now%time.Second) / float64(time.Second)
	switch int64(now/time.Second) - l.second {
	case 0:
		return l.cur + l.prev*(1-elapsed)
	case 1:
		return l.cur * (1 - elapsed)
	}
	return 0
}
