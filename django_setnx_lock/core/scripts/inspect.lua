-- All there is to say about one lock. Writes nothing.
-- KEYS  1 name  2 waiters  3 alive  4 meta  [5 index]
-- Reply {type, value or false, 'ours', 'baton', 'foreign' or false, ms left (-1: never expires), fence,
--        holder record, number waiting, lease end in the index, now ms}   (what is not known is false)
--- prelude
-- What a companion key of another type would have said is not known: one lock's trouble must not
-- hide the others.
local kind = redis.call('TYPE', KEYS[1]).ok
local value = kind == 'string' and redis.call('GET', KEYS[1])
local fence, owner, holder = read_meta(token_at(KEYS[4]) or '')
local waiting = 0
local known = redis.pcall('HVALS', KEYS[3])
for _, one in ipairs(known.err and {} or known) do
  if (tonumber(string.match(one, '^%d+')) or 0) >= now_ms() then
    waiting = waiting + 1
  end
end
return {
  kind,
  value,
  value and (baton_for(value) and 'baton' or owner == value and 'ours' or 'foreign'),
  redis.call('PTTL', KEYS[1]),
  fence and whole(fence) or false, holder or false,
  waiting,
  KEYS[5] and redis.call('ZSCORE', KEYS[5], KEYS[1]) or false,
  whole(now_ms()),
}
