// Package precise sleeps to within some tens of microseconds. Go's own timers wait whole
// milliseconds in an idle process, because the runtime's poller rounds its timeout up. On Linux
// a sleep here is a timerfd that the poller watches like a socket: it needs no thread and no
// spinning. Elsewhere it is one of Go's.
package precise

import "time"

// Sleep pauses the calling goroutine for at least d. It returns at once if d <= 0.
func Sleep(d time.Duration) {
	if d > 0 && sleep(d) != nil {
		time.Sleep(d) // out of descriptors: a late wake-up is better than none
	}
}

// SleepUntil pauses the calling goroutine until t. It returns at once if t has passed.
func SleepUntil(t time.Time) { Sleep(time.Until(t)) }
