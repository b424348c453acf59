-- What there is to say about locks. Writes nothing.
-- KEYS  of each lock: name, meta   last, if their number is odd: index
-- ARGV  1 how many of those waiting to name, 1 or more
-- Reply of each {type of what stands at the name, that, 'ours', 'given' to one who has not asked since, or 'foreign', ms left
--       (-1: never ends), fence, holder record, number waiting, now in us, of those who hold it together {token, ms left,
--       fence, holder record, awaited}, of the first of those waiting {token, when it came in us, holder record}, unit of a time
--       of ours, awaited]; awaited: {name, token there, when it came in us} of the lock that the holder waits for itself
--       What is not known is false. As JSON if that can be had, which clients read many times quicker; and about the first
--       of the locks only, if many wait for them or hold them: the caller asks for the others.
local most = tonumber(ARGV[1])
local COUNTED = 500    -- so many of a queue are looked at to see who is alive; the others count as if they were
local LONGEST = 65535  -- no text of ours is longer
local BUDGET, spent = 50, 0 -- no call keeps Redis busy for longer than so many locks take that nobody waits for

local function inspect(KEYS)
--- lib
--- waits
-- What that holder waits for itself, as it says while it looks for a deadlock.
local function awaited(holder)
  local queued, name = read_wait(NAME, holder)
  local rank = queued and is_queued(name, queued)
  return rank and {name, queued, rank} or false
end
  local kind, left = redis.call('TYPE', NAME).ok, redis.call('PTTL', NAME)
  local value = kind == 'string' and redis.call('GETRANGE', NAME, 0, LONGEST)
  local fence, owner, record = string.match(ask('GETRANGE', META, 0, LONGEST) or '', '^(%d+) (%S+) (.*)$')
  local ends, about = string.match(record or '', '^@(%d+) (.*)$')
  local unit = ends and (value == ends and 'ms' or value == whole(math.ceil(ends / 1000)) and 's')
  if unit then
    -- In its place, whose it is.
    value, record, left = owner, about, ends - now
    if left <= 0 then
      kind, value = 'none', false
    end
  end
  local how = value and (owner == value and 'ours' or 'foreign')
  local queued, given = ask('ZRANGE', WAITERS, 0, COUNTED - 1) or {}, {}
  local waiting = #queued == COUNTED and redis.call('ZCARD', WAITERS) - COUNTED or 0
  local named, shares = {}, {}
  local function is_given(token)
    return ask('HEXISTS', WAITING, token) == 1 and not ask('ZSCORE', WAITERS, token)
  end
  if how == 'ours' and is_given(value) then
    how, given = 'given', {value}
  end
  local together = value and string.match(value, '^(%l+):%d+$')
  if together == 'readers' or together == 'permits' then
    local found = ask('ZRANGE', SHARES, 0, -1, 'WITHSCORES') or {}
    for at = 1, #found, 2 do
      local token, rest = found[at], found[at + 1] - now
      local own, about = string.match(ask('HGET', HOLDERS, token) or '', '^(%d+) (.*)$')
      if rest > 0 and is_given(token) then
        table.insert(given, token)
      elseif rest > 0 and own then
        table.insert(shares, {token, whole(math.min(rest, 2 ^ 53)), own, string.sub(about, 1, LONGEST), awaited(token)})
      end
    end
  end
  -- Those it was given to have left the queue.
  for _, tokens in ipairs({given, queued}) do
    for first = 1, #tokens, COUNTED do
      local last = math.min(first + COUNTED - 1, #tokens)
      for at, row in ipairs(ask('HMGET', WAITING, unpack(tokens, first, last)) or {}) do
        local alive, _, _, about, rank = parse_waiter(row)
        if alive and alive >= now then
          waiting = waiting + 1
          if #named < most then
            table.insert(named, {tokens[first + at - 1], rank, string.sub(about, 1, LONGEST)})
          end
        end
      end
    end
  end
  spent = spent + 1 + #queued / 10 + #shares + #named / 4
  return {kind, value, how, left, fence or false, record or false, waiting, whole(now_us), shares, named, unit or false,
    how == 'ours' and not together and awaited(value)}
end

local found = {}
for at = 1, #KEYS - 1, 2 do
  table.insert(found, inspect({KEYS[at], KEYS[at + 1]}))
  if spent >= BUDGET then
    break
  end
end
-- Not every server makes JSON of bytes that are no UTF-8.
local is_json, json = pcall(cjson.encode, found)
return is_json and json or found
