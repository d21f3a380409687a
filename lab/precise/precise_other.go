//go:build !linux

package precise

import "time"

func sleep(d time.Duration) { time.Sleep(d) }
