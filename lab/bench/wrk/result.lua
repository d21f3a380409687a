-- The last line that wrk prints, for a program to read. Latencies are in
-- microseconds.
function done(summary, latency)
	local e = summary.errors
	io.write(string.format(
		'RESULT {"requests":%d,"seconds":%.6f,"errors":%d,'
			.. '"figures":{"p50_us":%.1f,"p99_us":%.1f,"p999_us":%.1f,"max_us":%.1f}}\n',
		summary.requests, summary.duration / 1e6, e.connect + e.read + e.write + e.status + e.timeout,
		latency:percentile(50), latency:percentile(99), latency:percentile(99.9), latency.max))
end
