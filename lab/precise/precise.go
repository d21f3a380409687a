// Package precise sleeps to within some tens of microseconds.
//
// Go's own timers wait in whole milliseconds when the process is otherwise idle,
// because the runtime's poller rounds its time-out up. A service time of 1.2 ms
// would take 2 ms, and a load generator that is to send every 200 µs would send
// bursts. On Linux a sleep here is a timerfd that the runtime's poller watches
// like a socket, so it costs no thread and no spinning.
package precise

import "time"

// Sleep pauses the calling goroutine for at least d. It returns at once when
// d <= 0.
func Sleep(d time.Duration) {
	if d > 0 {
		sleep(d)
	}
}

// SleepUntil pauses until the wall or monotonic time t, and returns at once when
// t has passed.
func SleepUntil(t time.Time) { Sleep(time.Until(t)) }
