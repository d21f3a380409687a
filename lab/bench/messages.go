package bench

import (
	"fmt"
	"time"
)

// MessageRows are GRPCRows with a server of long messages.
func MessageRows() []Row {
	rows := GRPCRows()
	for i := range rows {
		rows[i].replicas.streams = true
	}
	return rows
}

// messageSize is that of the side of a call that is not long.
const messageSize = 200

// Messages are closed loops of gRPC calls with a response or a request of each of bodySizes, one at a time on each
// connection.
func Messages(d time.Duration) (loads []Load) {
	for _, size := range bodySizes {
		for _, response := range []bool{true, false} {
			what, c := "requests", grpcCalls{request: size, response: messageSize}
			if response {
				what, c = "responses", grpcCalls{request: messageSize, response: size}
			}
			c.connections, c.streams = bodyConnections, 1
			name := fmt.Sprintf("gRPC %s of %s, %d connections", what, sizeName(size), bodyConnections)
			loads = append(loads, Load{Name: name, bytes: size, period: closedPeriod, send: c.run(d)})
		}
	}
	return loads
}

// messageVerdicts judges the promises of the bench of long messages.
func (s Samples) messageVerdicts() (all []Verdict) {
	for _, load := range Messages(0) {
		for _, peer := range []string{"haproxy-2", "nginx-2"} {
			all = append(all, s.compare("CPU per GiB of two hops", "remora-2", peer, load.Name, PerGiB, 1))
		}
	}
	return all
}
