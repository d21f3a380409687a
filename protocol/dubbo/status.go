package dubbo

// Status is the outcome of a request, from the header of its response.
type Status byte

// The statuses of Dubbo (org.apache.dubbo.remoting.exchange.Response).
const (
	StatusOK              Status = 20
	StatusSerialization   Status = 25
	StatusClientTimeout   Status = 30
	StatusServerTimeout   Status = 31
	StatusChannelInactive Status = 35
	StatusBadRequest      Status = 40
	StatusBadResponse     Status = 50
	StatusServiceNotFound Status = 60
	StatusServiceError    Status = 70
	StatusServerError     Status = 80
	StatusClientError     Status = 90
	StatusPoolExhausted   Status = 100
)

type outcome struct {
	http int    // the matching HTTP status
	code string // stable, for x-remora-error; "" for StatusOK
}

var outcomes = [256]outcome{
	StatusOK:              {200, ""},
	StatusSerialization:   {500, "dubbo-serialization-error"},
	StatusClientTimeout:   {504, "dubbo-client-timeout"},
	StatusServerTimeout:   {504, "dubbo-server-timeout"},
	StatusChannelInactive: {502, "dubbo-channel-inactive"},
	StatusBadRequest:      {400, "dubbo-bad-request"},
	StatusBadResponse:     {502, "dubbo-bad-response"},
	StatusServiceNotFound: {404, "dubbo-service-not-found"},
	StatusServiceError:    {500, "dubbo-service-error"},
	StatusServerError:     {500, "dubbo-server-error"},
	StatusClientError:     {502, "dubbo-client-error"},
	StatusPoolExhausted:   {503, "dubbo-pool-exhausted"},
}

func (s Status) outcome() outcome {
	if o := outcomes[s]; o.http != 0 {
		return o
	}
	return outcome{502, "dubbo-unknown-status"}
}

// HTTP returns the matching HTTP status, or 502 for an unknown status.
func (s Status) HTTP() int { return s.outcome().http }

// Code returns the stable code of a status for x-remora-error, or "" for StatusOK.
func (s Status) Code() string { return s.outcome().code }

// StatusOf returns the Dubbo status that matches an HTTP status. An overloaded provider (429,
// 503) becomes an exhausted pool, so that callers try another.
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
