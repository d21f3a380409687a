-- Calls of a Dubbo method with one string, as a form.
dofile(debug.getinfo(1, "S").source:match("^@(.*/)") .. "result.lua")

local call = "interface=com.example.Hello&method=hash&parameterTypesString=Ljava%2Flang%2FString%3B&parameter="
local calls, last = {}, 0

function init()
	wrk.headers["Content-Type"] = "application/x-www-form-urlencoded"
	for length = 0, 1023 do
		calls[length] = wrk.format("POST", "/", nil, call .. string.rep("x", length))
	end
end

-- The step is odd, so that it comes to every length in turn.
function request()
	last = (last + 617) % 1024
	return calls[last]
end
