package replica

// Mode says what disturbs a replica.
type Mode string

const (
	Fast       Mode = "fast"       // nothing: it responds at once, for benches
	Stall      Mode = "stall"      // it freezes at its own moments
	GC         Mode = "gc"         // it drops and refills a cache full of pointers
	Correlated Mode = "correlated" // all replicas freeze at the same moments
	Expiry     Mode = "expiry"     // only its cache, which expires whole each minute, and the store behind it
	Unequal    Mode = "bimodal"    // requests differ by nature: a tenth takes ten times Median more
)

// Modes lists all modes.
var Modes = []Mode{Fast, Stall, GC, Correlated, Expiry, Unequal}

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
	Bimodal     Service = "bimodal"     // lognormal; a tenth, drawn anew for each attempt, takes ten times Median more
	Natural     Service = "natural"     // lognormal; a tenth of the requests of HTTP/1.1, chosen by their x-nonce, takes ten times Median more
)

// Services lists all distributions.
var Services = []Service{Lognormal, Exponential, Bimodal, Natural}

// CacheKind says what the entries of a cache are made of.
type CacheKind string

const (
	PointerCache CacheKind = "pointers" // objects that point at each other, which the garbage collector visits
	FlatCache    CacheKind = "flat"     // numbers only, which it does not
)

// CacheKinds lists all kinds.
var CacheKinds = []CacheKind{PointerCache, FlatCache}
