// Package outlier finds the endpoints of a set that fail or are slow, and says when such an endpoint is
// ejected, probed and restored.
//
// # Model
//
// A Record counts the attempts of an endpoint by outcome, over the last 5 to 10 s. Rules compare a record
// with limits: failures in a row, the share of good attempts, the mean latency as a multiple of the other
// endpoints' median. An endpoint past a limit is ejected: picks avoid it. After the time of the Ejection it
// gets one request, the probe. A good probe restores the endpoint, and a bad one ejects it for twice as
// long. An endpoint that is not ejected gets less load by its Discount.
//
// # Source
//
// The limits, and ejections that become longer, are those of Envoy's outlier detection
// (envoy.config.cluster.v3.OutlierDetection). The probe is the half-open state of a circuit breaker (Nygard,
// "Release It!", 2007): Envoy returns an endpoint unprobed.
//
// # Error
//
// If an endpoint fails one attempt in ten, more than half of 20 attempts fail with a probability below 1 in
// 100,000. That is the chance of a wrong ejection at a success_rate of 0.5. A failure counts for the Discount
// as if four good attempts had come before, so a single one takes half of the load.
//
// The package is pure: time is an argument. A Record and an Ejection belong to one loop.
package outlier
