-- A POST of 300 bytes of JSON, as the feature service gets.
dofile(debug.getinfo(1, "S").source:match("^@(.*/)") .. "result.lua")

local open, close = '{"features":"', '"}'
wrk.method = "POST"
wrk.body = open .. string.rep("7", 300 - #open - #close) .. close
wrk.headers["Content-Type"] = "application/json"
