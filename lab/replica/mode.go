package replica

// Mode says what disturbs a replica.
type Mode string

const (
	Fast       Mode = "fast"       // nothing: it responds at once, for benches
	Stall      Mode = "stall"      // it freezes at its own moments
	GC         Mode = "gc"         // it drops and refills a cache full of pointers
	Correlated Mode = "correlated" // all replicas freeze at the same moments
)

// Modes lists all modes.
var Modes = []Mode{Fast, Stall, GC, Correlated}

// Protocol is the protocol of a replica.
type Protocol string

const (
	HTTP  Protocol = "http"  // HTTP/1.1
	Dubbo Protocol = "dubbo" // Dubbo 2
)

// Protocols lists all protocols.
var Protocols = []Protocol{HTTP, Dubbo}

// Service is a distribution of service times.
type Service string

const (
	Lognormal   Service = "lognormal"
	Exponential Service = "exponential" // with Median as its mean
	Bimodal     Service = "bimodal"     // lognormal; a tenth takes ten times Median more
)

// Services lists all distributions.
var Services = []Service{Lognormal, Exponential, Bimodal}
