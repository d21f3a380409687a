package peers

import "testing"

// framework is what the tests of both Hertz and Kitex need to know of one.
type framework struct {
	name, speaks string // of the program of scripts/cloudwego; the protocol of its endpoints
	// load calls the application at addr again and again.
	load func(t *testing.T, addr string) *cloudwegoLoad
	// beside makes more calls of replicas while the load runs; nil makes none.
	beside func(t *testing.T, addr string, apps []*cloudwegoServer)
	// leave makes a client leave in the middle of a stream, of which the server, started with flags, says left.
	leave func(t *testing.T, addr string)
	flags []string
	left  string
}

var frameworks = []framework{
	{name: "hertz", speaks: "http", load: loadHertz, leave: leaveHertz, flags: []string{"-stream"}, left: "left"},
	{name: "kitex", speaks: "grpc", load: loadKitex, leave: leaveKitex, left: "cancelled",
		beside: func(t *testing.T, addr string, apps []*cloudwegoServer) { // Kitex's own client, beside grpc-go
			runKitex(t, "grpc", []string{"-addr", addr}, "many", "once", "both_streams")
			checkDid(t, apps, "once-", 200)
		}},
}

// eachFramework runs a test with each framework behind one sidecar, and behind two.
func eachFramework(t *testing.T, test func(t *testing.T, f *framework, start startSidecars)) {
	needCloudwego(t)
	for i := range frameworks {
		for way, start := range cloudwegoWays {
			t.Run(frameworks[i].name+"/"+way, func(t *testing.T) { test(t, &frameworks[i], start) })
		}
	}
}

// TestCloudwegoHedges: hedges win where a replica is slow, and no call is lost, or carried out twice that may not be.
func TestCloudwegoHedges(t *testing.T) {
	eachFramework(t, func(t *testing.T, f *framework, start startSidecars) {
		apps, endpoints := replicas(t, f.name)
		p, addr := start(t, "http", f.speaks, endpoints...)
		load := f.load(t, addr)
		if f.beside != nil {
			f.beside(t, addr, apps)
		}
		p.AwaitMetric(`remora_hedges_total{result="won",service="app"}`, 5)
		load.more(t, 200)
		load.check(t, apps, 0)
	})
}

// TestCloudwegoStops: replicas stop in their own way under load, and start again. No call fails that may be carried out
// twice. One that may not fails if its connection closes, and is not sent again.
func TestCloudwegoStops(t *testing.T) {
	eachFramework(t, func(t *testing.T, f *framework, start startSidecars) {
		apps, endpoints := replicas(t, f.name)
		_, addr := start(t, "http", f.speaks, endpoints...)
		checkStops(t, f.load(t, addr), apps)
	})
}

// TestCloudwegoLeaves: a server learns of a client that has left, or has cancelled its stream.
func TestCloudwegoLeaves(t *testing.T) {
	eachFramework(t, func(t *testing.T, f *framework, start startSidecars) {
		app := startCloudwego(t, f.name, f.flags...)
		_, addr := start(t, "http", f.speaks, app.addr)
		f.leave(t, addr)
		app.says(f.left)
	})
}
