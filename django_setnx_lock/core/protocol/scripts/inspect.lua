-- All there is to say about a lock, or about several. Writes nothing.
-- KEYS  as of shared_keys; of several locks the first 7 of each, one lock after the other, and then [the index]
-- ARGV  1 's' or 'ms': in what unit a number at the name is the time until which the lock is valid, where
--       nothing beside it tells; '' if no lock is of that kind  2 how many of those waiting to name, 1 or more
--       [3 'each': of several locks]
-- Reply {type, value or false, 'ours', 'baton', 'foreign' or false, ms left (-1: never expires), fence,
--        holder record, number waiting, now ms, that unit if the value is a time,
--        of each who holds it together with others: {token, ms left, fence, holder record, what it waits for},
--        of the first of those waiting: {token, when it came, in us, holder record},
--        what the one who holds it waits for: {name, token it waits by, when it came there}}
--       (what is not known is false; where the value is only a time, the token beside it stands for it, as where
--       the lease of that one is over)
--       of several: an array of these, as JSON if that can be had, which clients read many times quicker. It is
--       about the first of the locks only, if many wait for them or hold them: the caller asks for the others
--- shared_keys
--- prelude
--- asking
--- timestamp
--- nesting
local most = tonumber(ARGV[2])
--- waiting
local COUNTED = 500 -- so many of a queue are looked at to see who is alive; the others count as if they were
-- No call keeps Redis busy for longer than so many locks take that nobody waits for: a millisecond or two.
local BUDGET = 100
local spent = 0
local function inspect()
  local kind = redis.call('TYPE', NAME).ok
  local value = kind == 'string' and redis.call('GET', NAME)
  local meta = token_at(META) or ''
  local fence, owner, holder = read_meta(meta)
  local how = value and (baton_for(value) and 'baton' or (owner == value or owner == HOSTED .. value) and 'ours' or 'foreign')
  local left = redis.call('PTTL', NAME)
  local queued = redis.pcall('ZRANGE', WAITERS, 0, COUNTED - 1)
  queued = queued.err and {} or queued
  local waiting = #queued == COUNTED and redis.call('ZCARD', WAITERS) - COUNTED or 0
  for _, token in ipairs(queued) do
    waiting = waiting + (is_alive(token) and 1 or 0)
  end
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
    if not left then
      kind, how, value, left = 'none', false, false, 0
    end
  else
    unit = false
  end
  named = {}
  local shares, left_to = {}, {baton_for(value)}
  for _, token in ipairs(group_at(value) and ask('ZRANGE', SHARES, 0, -1) or {}) do
    local rest = redis.call('ZSCORE', SHARES, token) - now_ms()
    local own, record = string.match(ask('HGET', HOLDERS, token) or '', '^(%d+) (.*)$')
    if own and rest > 0 then
      table.insert(shares, {token, math.min(rest, FENCES), tonumber(own) < FENCES and own or '0', record, awaited_by(token)})
    else
      left_to[#left_to + 1] = baton_for(token)
    end
  end
  for _, token in ipairs(left_to) do
    waiting = waiting + (is_alive(token) and 1 or 0)
    name_waiter(token)
  end
  -- Who is named is among those counted.
  if waiting > 0 then
    name_queued()
  end
  spent = spent + 1 + #queued / 10 + #shares + #named / 4
  return {
    kind,
    value,
    how,
    math.floor(left),
    fence and fence < FENCES and whole(fence) or false, holder or false,
    waiting,
    whole(now_ms()),
    unit,
    shares,
    named,
    how == 'ours' and awaited_by(value),
  }
end

if not ARGV[3] then
  return inspect()
end
local found = {}
INDEX = #KEYS % 7 == 1 and KEYS[#KEYS]
for first = 1, #KEYS - 6, 7 do
  NAME, WAITERS, ALIVE, TOMBSTONE, META, SHARES, HOLDERS = unpack(KEYS, first, first + 6)
  table.insert(found, inspect())
  if spent >= BUDGET then
    break
  end
end
-- Not every server makes JSON of bytes that are no UTF-8.
local is_json, json = pcall(cjson.encode, found)
return is_json and json or found
