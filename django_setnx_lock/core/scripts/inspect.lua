-- All there is to say about one lock. Writes nothing.
-- KEYS  1 name  2 waiters  3 alive  4 meta  5 shares  6 holders  [7 index]
-- ARGV  1 's' or 'ms': in what unit a number at the name is the time until which the lock is valid, where
--       nothing beside it tells; '' if no lock is of that kind
-- Reply {type, value or false, 'ours', 'baton', 'foreign', 'over' or false, ms left (-1: never expires), fence,
--        holder record, number waiting, lease end in the index, now ms, that unit if the value is a time,
--        of each who holds it together with others: {token, ms left, fence, holder record}}
--       (what is not known is false; where the value is only a time, the token beside it stands for it)
--- prelude
-- What a companion key of another type would have said is not known: one lock's trouble must not
-- hide the others.
local kind = redis.call('TYPE', KEYS[1]).ok
local value = kind == 'string' and redis.call('GET', KEYS[1])
local meta = token_at(KEYS[4]) or ''
local fence, owner, holder = read_meta(meta)
local how = value and (baton_for(value) and 'baton' or (owner == value or owner == POLLING .. value) and 'ours' or 'foreign')
local left = redis.call('PTTL', KEYS[1])
local waiting = 0
local alive = redis.pcall('HVALS', KEYS[3])
for _, one in ipairs(alive.err and {} or alive) do
  if (tonumber(string.match(one, '^%d+')) or 0) >= now_ms() then
    waiting = waiting + 1
  end
end
--- timestamp
local known = read_known(meta)
local unit = known.unit or MS[ARGV[1]] and ARGV[1]
if known.ends then
  holder = known.record
end
if how == 'foreign' and unit and as_time(value, unit) then
  how = stands(value, known) and 'ours' or how
  left = time_left(value, known, unit)
  if how == 'ours' then
    value = owner
  else
    fence, holder = nil, nil
  end
  if left <= 0 then
    how, value, left = 'over', false, 0
  end
else
  unit = false
end
local shares = {}
for _, token in ipairs(group_at(value) and redis.call('ZRANGE', KEYS[5], 0, -1) or {}) do
  local rest = redis.call('ZSCORE', KEYS[5], token) - now_ms()
  local own, record = string.match(redis.call('HGET', KEYS[6], token) or '', '^(%d+) (.*)$')
  if own and rest > 0 then
    table.insert(shares, {token, rest, own, record})
  end
end
return {
  kind,
  value,
  how,
  math.floor(left),
  fence and whole(fence) or false, holder or false,
  waiting,
  KEYS[7] and redis.call('ZSCORE', KEYS[7], KEYS[1]) or false,
  whole(now_ms()),
  unit,
  shares,
}
