// Package harness starts sidecars in processes of their own, for the tests in the packages beside it. Main builds the
// program; Start runs it with a configuration. A Process is asked by its admin API (metrics.go, usage.go), reloaded and
// replaced (restart.go). The other files are applications and clients that several packages of tests share; package h2
// beside this one is a peer that sends any frame of HTTP/2.
//
// A test waits for what it expects by Patience or package eventually, and takes addresses only from FreeAddrs, so that
// packages of tests run beside each other.
package harness
