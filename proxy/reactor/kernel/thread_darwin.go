package kernel

import "time"

// ThreadTime returns 0: the time is unknown.
func ThreadTime() (thread int, used time.Duration) { return 0, 0 }
