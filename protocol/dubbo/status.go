package dubbo

// Status is the outcome of a request, from the header of its response.
type Status byte

// The statuses of Dubbo (org.apache.dubbo.remoting.exchange.Response).
const (
	StatusOK              Status = 20
	StatusClientTimeout   Status = 30
	StatusServerTimeout   Status = 31
	StatusBadRequest      Status = 40
	StatusBadResponse     Status = 50
	StatusServiceNotFound Status = 60
	StatusServiceError    Status = 70
	StatusServerError     Status = 80
	StatusClientError     Status = 90
	StatusPoolExhausted   Status = 100
)

// HTTP returns the matching HTTP status, or 502 for an unknown status.
func (s Status) HTTP() int {
	switch s {
	case StatusOK:
		return 200
	case StatusBadRequest:
		return 400
	case StatusServiceNotFound:
		return 404
	case StatusServiceError, StatusServerError:
		return 500
	case StatusPoolExhausted:
		return 503
	case StatusClientTimeout, StatusServerTimeout:
		return 504
	}
	return 502
}

// Code returns the stable code of a status for x-remora-error, or "" for StatusOK.
func (s Status) Code() string {
	switch s {
	case StatusOK:
		return ""
	case StatusClientTimeout:
		return "dubbo-client-timeout"
	case StatusServerTimeout:
		return "dubbo-server-timeout"
	case StatusBadRequest:
		return "dubbo-bad-request"
	case StatusBadResponse:
		return "dubbo-bad-response"
	case StatusServiceNotFound:
		return "dubbo-service-not-found"
	case StatusServiceError:
		return "dubbo-service-error"
	case StatusServerError:
		return "dubbo-server-error"
	case StatusClientError:
		return "dubbo-client-error"
	case StatusPoolExhausted:
		return "dubbo-pool-exhausted"
	}
	return "dubbo-unknown-status"
}

// StatusOf returns the Dubbo status that matches an HTTP status. An overloaded provider
// (429, 503) becomes an exhausted pool, so that callers try another.
func StatusOf(http int) Status {
	switch {
	case http >= 200 && http < 300:
		return StatusOK
	case http == 404:
		return StatusServiceNotFound
	case http == 408 || http == 504:
		return StatusServerTimeout
	case http == 429 || http == 503:
		return StatusPoolExhausted
	case http >= 400 && http < 500:
		return StatusBadRequest
	}
	return StatusServerError
}
