package health

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
)

// wholeServer is the name in Check.GRPC for the health of a server as a whole. No service has it.
const wholeServer = "/"

const (
	healthPath = "/grpc.health.v1.Health/Check"
	framed     = 5        // bytes before a gRPC message: a flag and the length
	maxMessage = 1 << 10  // of a response: it is one number
	servingTag = 1 << 3   // field 1, a varint
	serviceTag = 1<<3 | 2 // field 1, a string
	statusName = "Grpc-Status"
)

// servingNames are those of grpc.health.v1.HealthCheckResponse.ServingStatus.
var servingNames = []string{"UNKNOWN", "SERVING", "NOT_SERVING", "SERVICE_UNKNOWN"}

// healthRequest returns the message of a check of the service.
func healthRequest(service string) []byte {
	var message []byte
	if service != wholeServer {
		message = append(binary.AppendUvarint([]byte{serviceTag}, uint64(len(service))), service...)
	}
	return append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(message))), message...)
}

// prepareGRPC makes req, a GET of a, a check of grpc.health.v1.
func (a *asker) prepareGRPC(req *http.Request) {
	body := healthRequest(a.check.GRPC)
	req.Method, req.Body, req.ContentLength = http.MethodPost, io.NopCloser(bytes.NewReader(body)), int64(len(body))
	req.Header.Set("Content-Type", "application/grpc")
	req.Header.Set("Te", "trailers")
}

// judgeGRPC returns nil if the response says that the service is serving.
func judgeGRPC(resp *http.Response) error {
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxMessage+1)) // to its end, for the trailers
	switch {
	case err != nil:
		return err
	case resp.StatusCode != http.StatusOK:
		return fmt.Errorf("status %s", resp.Status)
	case len(body) > maxMessage:
		return fmt.Errorf("more than %d bytes", maxMessage)
	}
	from := resp.Trailer
	if from.Get(statusName) == "" {
		from = resp.Header
	}
	switch status := from.Get(statusName); status {
	case "0":
	case "":
		return errors.New("no grpc-status")
	default:
		return fmt.Errorf("grpc-status %q: %.256q", status, from.Get("Grpc-Message"))
	}
	return serving(body)
}

// serving returns nil if a message says SERVING.
func serving(body []byte) error {
	if len(body) < framed || body[0] != 0 || int(binary.BigEndian.Uint32(body[1:])) != len(body)-framed {
		return fmt.Errorf("malformed: %.32x", body)
	}
	message, status := body[framed:], uint64(0)
	if len(message) > 0 {
		var n int
		if status, n = binary.Uvarint(message[1:]); message[0] != servingTag || n <= 0 {
			return fmt.Errorf("malformed: %.32x", body)
		}
	}
	switch {
	case status == 1:
		return nil
	case status < uint64(len(servingNames)):
		return errors.New(servingNames[status])
	}
	return fmt.Errorf("unknown status %d", status)
}
