package unwanted

import "time"

// model has the constants.
var model = constants{
	kept:      32,
	enough:    8,
	every:     8,
	fresh:     10 * time.Second,
	fade:      8,
	least:     time.Millisecond,
	factor:    2,
	share:     0.5,
	perSecond: 100,
	burst:     50,
}

type constants struct {
	// kept is how many of the attempts that were left to finish are remembered. More follow a change later.
	kept int

	// enough is how many of them must be fresh, to know how long the application works on.
	enough int

	// One attempt in every is left to finish, so that they stay known. More save more load, and less is known.
	every int

	// An attempt that was left to finish is fresh for the time fresh, and fade times as long as the application
	// worked on: rare requests are long ones.
	fresh time.Duration
	fade  int

	// A connection costs factor times the time that the connect takes, and the time least: the sidecar does not
	// see what the server does after the connect, such as starting a thread.
	least  time.Duration
	factor int

	// At most the part share of the requests may cost a connection, perSecond of them over all loops, and burst
	// at once on one loop. At an application that does not notice the end of a connection each is a loss. The
	// sidecar of a slow replica has few requests that are not overtaken.
	share, perSecond, burst float64
}
