// Package proxytest is what the tests of the core share: a mesh of sidecars,
// applications and clients on the simulator (Mesh), a driver without a network
// (NullLoop), the corpus of requests and responses, and peers that misbehave.
//
// No command imports it.
package proxytest
