-- A POST of JSON of 300 bytes, as the feature service gets.
dofile(debug.getinfo(1, "S").source:match("^@(.*/)") .. "result.lua")

local open, close = '{"features":"', '"}'
wrk.method = "POST"
wrk.headers["Content-Type"] = "application/json"
wrk.body = open .. string.rep("7", 300 - #open - #close) .. close
