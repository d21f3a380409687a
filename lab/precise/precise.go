// Package precise sleeps to within some tens of microseconds.
//
// Go's own timers wait whole milliseconds in an idle process, because the runtime's poller
// rounds its timeout up. A service time of 1.2 ms would take 2 ms, and a load generator that
// must send every 200 µs would send bursts. On Linux a sleep here is a timerfd that the
// runtime's poller watches like a socket: it needs no thread and no spinning.
package precise

import "time"

// Sleep pauses the calling goroutine for at least d. It returns at once if d <= 0.
func Sleep(d time.Duration) {
	if d > 0 {
		sleep(d)
	}
}

// SleepUntil pauses the calling goroutine until t. It returns at once if t has passed.
func SleepUntil(t time.Time) { Sleep(time.Until(t)) }
