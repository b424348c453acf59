-- All there is to say about one lock. Writes nothing.
-- KEYS  1 name  2 meta  3 waiters  [4 index]
-- Reply {type, value or false, ms left (-1: never expires), fence, token, holder record, since ms,
--        number waiting, lease end in the index, now ms}   (what is not known is false)
-- What a companion key of another type would have said is not known: one lock's trouble must not
-- hide the others.
local kind = redis.call('TYPE', KEYS[1]).ok
local meta = redis.pcall('HMGET', KEYS[2], 'fence', 'token', 'holder', 'since')
if meta.err then
  meta = {false, false, false, false}
end
local waiting = redis.pcall('ZCOUNT', KEYS[3], now_ms, '+inf')
return {
  kind,
  kind == 'string' and redis.call('GET', KEYS[1]),
  redis.call('PTTL', KEYS[1]),
  meta[1], meta[2], meta[3], meta[4],
  type(waiting) == 'number' and waiting or 0,
  KEYS[4] and redis.call('ZSCORE', KEYS[4], KEYS[1]) or false,
  string.format('%.0f', now_ms),
}
