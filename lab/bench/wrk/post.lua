-- A POST of JSON, of 300 bytes as the feature service gets, or of as many as the
-- argument says.
dofile(debug.getinfo(1, "S").source:match("^@(.*/)") .. "result.lua")

local open, close = '{"features":"', '"}'
wrk.method = "POST"
wrk.headers["Content-Type"] = "application/json"

function init(args)
	local size = tonumber(args[1] or 300)
	if size > 0 then
		wrk.body = open .. string.rep("7", size - #open - #close) .. close
	end
end
