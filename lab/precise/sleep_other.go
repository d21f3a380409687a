//go:build !linux

package precise

import "time"

func sleep(d time.Duration) error {
	time.Sleep(d)
	return nil
}
