-- Put where a script says so: after what it can answer without, as all this takes time to set up.
-- Times are the server's, lives in milliseconds.
-- What is known of each waiter: 'ALIVE-UNTIL RANK ASKS-AGAIN-AT' by token, the first and last in ms; and by
-- 'who:TOKEN' its holder record, for operators.
local ALIVE_MARGIN = 2000 -- how late a waiter may ask again and still have its place
local AHEAD = 10000 -- by how much longer the queue is kept than need be, so as not to be told so by each
-- How long one who waits for a group sleeps at most: who would join it stands behind a dead one no longer.
local GROUP_SLICE = 5000

--- clock
local function now_ms()
  return math.floor(now_us() / 1000)
end

-- Lives of companion keys only ever grow: a short lease must not cut what a longer one needs.
local function grow(key, ms)
  redis.call('PEXPIRE', key, math.max(ms, redis.call('PTTL', key)))
end

-- What stands at the name, false when nothing does. Of something that is no string it is '', nobody's token: it
-- is taken all the same, and neither removed nor written over.
local function token_at(name)
  local value = redis.pcall('GET', name)
  return type(value) == 'table' and '' or value
end

--- reading
-- The name of a key beside the lock that is known at run time only.
local function beside(what, token)
  return string.match(WAITERS, '^(.*)waiters$') .. what .. token
end

-- Where the waiter of that token is woken: in a mailbox of its own, a list; or in one that an event loop has for all
-- its waiters, a sorted set of their tokens, which these name.
local function own_mailbox(token)
  return beside('wake:', token)
end

local function loop_mailbox(token)
  return string.match(token, '^[^@]*@({.*:mail:%x+)$')
end

-- Whether it has mail that was not fetched yet.
local function has_mail(token)
  local box = loop_mailbox(token)
  if box then
    return redis.call('ZSCORE', box, token)
  end
  return redis.call('EXISTS', own_mailbox(token)) == 1
end

local function drop_mail(token)
  local box = loop_mailbox(token)
  if box then
    redis.call('ZREM', box, token)
  else
    redis.call('DEL', own_mailbox(token))
  end
end

-- Alive-until, rank, and when it asks again, of one that waits; nothing of one not known.
local function read_waiter(token)
  local alive, rank, again = string.match(redis.call('HGET', ALIVE, token) or '', '^(%d+) (%d+) (%d+)$')
  return tonumber(alive), tonumber(rank), tonumber(again)
end

-- The first in the queue who is alive, those before it dropped; nil when nobody waits.
local function first_waiter()
  while true do
    local token = redis.call('ZRANGE', WAITERS, 0, 0)[1]
    if not token then
      return nil
    end
    local alive = read_waiter(token)
    if alive and alive >= now_ms() then
      return token
    end
    redis.call('ZREM', WAITERS, token)
    redis.call('HDEL', ALIVE, token, WHO .. token)
  end
end

-- Wake the waiter of that token. One that has mail already is not to be woken twice.
local function wake(token)
  local box = loop_mailbox(token)
  if box then
    redis.call('ZADD', box, now_ms(), token)
    redis.call('PEXPIRE', box, CLAIM)
    return
  end
  box = own_mailbox(token)
  if redis.call('LPUSH', box, 1) > 1 then
    redis.call('DEL', box)
    redis.call('LPUSH', box, 1)
  end
  redis.call('PEXPIRE', box, CLAIM)
end

-- Leave the lock to the waiter of that token, and to nobody else.
local function give_baton(token)
  redis.call('ZREM', WAITERS, token)
  redis.call('SET', NAME, BATON .. token, 'PX', CLAIM)
  wake(token)
end

-- Pass on a lock that nobody holds now; tells to whom, false when nobody waits.
local function hand_on()
  local token = first_waiter()
  if not token then
    return false
  end
  give_baton(token)
  return token
end

-- Have the next waiter ask again at once if it would sleep beyond what is left of the lease.
local function wake_if_later(left)
  local token = first_waiter()
  if token then
    local _, _, again = read_waiter(token)
    if again > now_ms() + left then
      wake(token)
    end
  end
end

--- grouping
-- Remember of one that it lost the lock: should its release come twice, the first is not taken for the end of it.
-- False where that was known.
local function remember_loss(token, ms)
  return redis.call('SET', beside('gone:', token), 'lost', 'NX', 'PX', whole(math.max(ms or 0, MEMORY)))
end

-- Wake one who sleeps as far as the server knows, though it has the lock now: by a late copy of its request.
local function wake_sleeper(token)
  if redis.call('ZSCORE', WAITERS, token) then
    wake(token)
  end
end

-- Out of the queue. Whoever is next was perhaps not told of a life cut short, as this one was.
local function leave_queue(token)
  local was_queued = redis.call('ZREM', WAITERS, token) == 1
  redis.call('HDEL', ALIVE, token, WHO .. token)
  local left = was_queued and redis.call('PTTL', NAME) or -1
  if left >= 0 then
    -- Whom this one stood before may perhaps join those who hold it.
    wake_if_later(group_at(token_at(NAME)) and -1 or left)
  end
end

-- Into the queue, or once more, asking again when what holds the lock has no more than that left. record: who it is.
local function queue_up(token, left, slice, record)
  local alive, rank, recorded = read_waiter(token)
  if not rank then
    local last = redis.call('ZRANGE', WAITERS, -1, -1, 'WITHSCORES')[2]
    rank = math.max(now_us(), (last or 0) + 1)
  end
  local asks_again = now_ms() + (left >= 0 and left < slice and left or slice)
  -- This copy may be a late one, and the caller asleep for as long as a later one was told.
  asks_again = math.max(asks_again, recorded or 0)
  redis.call('ZADD', WAITERS, rank, token)
  local known = string.format('%d %d %d', math.max(asks_again + ALIVE_MARGIN, alive or 0), rank, asks_again)
  if alive then
    redis.call('HSET', ALIVE, token, known)
  else
    redis.call('HSET', ALIVE, token, known, WHO .. token, record)
  end
  for _, key in ipairs({WAITERS, ALIVE}) do
    if redis.call('PTTL', key) < slice + ALIVE_MARGIN then
      redis.call('PEXPIRE', key, slice + ALIVE_MARGIN + AHEAD)
    end
  end
end
