// Package proxytest is shared by the tests of the core: a mesh of sidecars,
// applications and clients on the simulator (Mesh), a driver without a network
// (NullLoop), the corpus of requests and responses, and peers that misbehave. A test drives a Mesh call by call.
// Package sim/mesh is for whole runs that follow from a script or a seed.
//
//	mesh.go, node.go     Mesh and Node, a sidecar of it
//	callers.go           Callers, the clients of a Mesh; client.go their HTTP connections
//	dubbo_client.go      Dubbo consumers and their calls
//	app.go, dubbo.go     applications over HTTP and Dubbo; apps.go prepares several
//	load.go, script.go   load, faults, and peers in the place of a provider's sidecar
//	peer.go, ledger.go   peers that send any bytes, and the messages seen on a link
//	stream.go            streams that a Node opens; carrier.go keeps those that it is given
//	pipe.go              a loop.Pipe of which a test has both ends
//	records.go           access log and spans
//	corpus.go            the cases of the HTTP corpus
//	dial.go              a loop that counts dials
//	alloc.go             AllocMesh, on the null driver of nulldriver.go; turns.go tests turn by turn there
//	fixtures.go          constants and small helpers
//
// Methods whose name begins with Check report errors to the test. No command imports
// the package.
package proxytest
