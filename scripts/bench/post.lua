-- A POST of 300 bytes of JSON, as the feature service gets, and a last line that
-- a program can read. Latencies are in microseconds.
local open, close = '{"features":"', '"}'
wrk.method = "POST"
wrk.body = open .. string.rep("7", 300 - #open - #close) .. close
wrk.headers["Content-Type"] = "application/json"

function done(summary, latency)
	local e = summary.errors
	io.write(string.format(
		'RESULT {"requests":%d,"seconds":%.6f,"errors":%d,"p50":%.1f,"p99":%.1f,"p999":%.1f,"max":%.1f}\n',
		summary.requests, summary.duration / 1e6, e.connect + e.read + e.write + e.status + e.timeout,
		latency:percentile(50), latency:percentile(99), latency:percentile(99.9), latency.max))
end
