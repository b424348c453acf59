-- Put where a request to stop is noted in a holder record. The first stays: the holder is told of one.
local NOTED, NOTED_BEFORE = 'noted', 'noted before'

-- What ends in that record, with the request (JSON) and the time in it; or NOTED if an earlier copy of it has done
-- that, NOTED_BEFORE if another request has.
local function note_stop(value, record, request)
  local open = string.sub(request, 1, -2)
  if string.find(record, STOP, 1, true) then
    return string.find(record, ',"stop":' .. open, 1, true) and NOTED or NOTED_BEFORE
  end
  local rest = string.match(record, '^({".*)}$') or '{"pid":0'
  return string.sub(value, 1, -#record - 1) .. rest .. ',"stop":' .. open .. ',"at":' .. whole(now_ms()) .. '}}'
end
