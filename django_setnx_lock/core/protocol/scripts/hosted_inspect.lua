-- All there is to say about locks, as inspect.lua does of several where nobody queues. Writes nothing.
-- KEYS  of each lock, one after the other: name, meta; and then [the index]
-- Reply an array, as JSON if that can be had, of {type, value or false, 'ours', 'baton', 'foreign' or false, ms left (-1: never
--       expires), fence, holder record, 0, now ms, false, {}, {}, false}
--       (what is not known is false)
--- reading
--- asking
local INDEX = #KEYS % 2 == 1 and KEYS[#KEYS]
local time = redis.call('TIME')
local function inspect(at)
  local kind = redis.call('TYPE', KEYS[at]).ok
  local value = kind == 'string' and redis.call('GET', KEYS[at])
  local meta = redis.pcall('GET', KEYS[at + 1])
  meta = type(meta) == 'string' and meta or ''
  local fence, owner, holder = read_meta(meta)
  local how = value and (baton_for(value) and 'baton' or 'foreign')
  if value and (owner == value or owner == HOSTED .. value) then
    how = 'ours'
  end
  return {
    kind,
    value,
    how,
    redis.call('PTTL', KEYS[at]),
    fence and fence < FENCES and whole(fence) or false, holder or false,
    0,
    whole(time[1] * 1000 + math.floor(time[2] / 1000)),
    false,
    {},
    {},
    false,
  }
end

local found = {}
for at = 1, #KEYS - 1, 2 do
  table.insert(found, inspect(at))
end
-- Not every server makes JSON of bytes that are no UTF-8.
local is_json, json = pcall(cjson.encode, found)
return is_json and json or found
