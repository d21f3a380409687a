-- For wrk: each request's body and x-nonce are the same, so each answer must
-- hold the same bytes in both places. Counts the responses that do not. With the
-- argument "close" each request has a connection of its own.

local threads = {}
local sent = 0

function setup(thread)
  thread:set("id", #threads)
  table.insert(threads, thread)
end

function init(args)
  bad, responses = 0, 0
  connection = args[1] or "keep-alive"
end

function request()
  sent = sent + 1
  local nonce = string.format("%d-%d-%s", id, sent, string.rep("n", sent % 300))
  return wrk.format("POST", nil, { ["x-nonce"] = nonce, ["Connection"] = connection }, nonce)
end

function response(status, headers, body)
  responses = responses + 1
  local nonce = headers["x-nonce"] or headers["X-Nonce"]
  if status ~= 200 or nonce == nil or body ~= nonce then
    bad = bad + 1
  end
end

function done(summary, _, _)
  local b, a = 0, 0
  for _, thread in ipairs(threads) do
    b, a = b + thread:get("bad"), a + thread:get("responses")
  end
  local e = summary.errors
  print(string.format("responses=%d bad=%d connect=%d read=%d write=%d timeout=%d status=%d",
    a, b, e.connect, e.read, e.write, e.timeout, e.status))
end
