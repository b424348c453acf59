-- All there is to say about one lock, as inspect.lua does where nobody queues. Writes nothing.
-- KEYS  1 name  2 meta  [3 index]
-- Reply {type, value or false, 'ours', 'baton', 'foreign', 'over' or false, ms left (-1: never expires), fence, holder
--        record, 0, lease end in the index, now ms, false, {}, {}, false}  (what is not known is false)
--- reading
--- has_let_go
--- asking
local kind = redis.call('TYPE', KEYS[1]).ok
local value = kind == 'string' and redis.call('GET', KEYS[1])
local meta, time = redis.pcall('GET', KEYS[2]), redis.call('TIME')
meta = type(meta) == 'string' and meta or ''
local fence, owner, holder = read_meta(meta)
local how = value and (baton_for(value) and 'baton' or 'foreign')
if value and (owner == value or owner == POLLING .. value) then
  how = 'ours'
end
--- over
return {
  kind,
  value,
  how,
  redis.call('PTTL', KEYS[1]),
  fence and fence < FENCES and whole(fence) or false, holder or false,
  0,
  KEYS[3] and ask('ZSCORE', KEYS[3], KEYS[1]) or false,
  whole(time[1] * 1000 + math.floor(time[2] / 1000)),
  false,
  {},
  {},
  false,
}
