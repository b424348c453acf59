-- Let the lock go if it is still mine, to the first who waits. Sending it twice is as good as once.
-- KEYS  1 name  2 waiters  3 alive  4 gone (this token's)  [5 index]; to keep it: 5 meta  [6 index]
-- ARGV  1 token  [2 ms for which its name is to be taken, from when it was granted  3 its fence]
-- Reply {'OK', waiter that it was handed to, or false}
--       {'LOST', how it was lost (JSON) or false, waiter that it is handed to, or false}

local index = KEYS[5]
if ARGV[2] then
  index = KEYS[6]
end
-- Held, and nobody waits: most are.
local is_mine = redis.pcall('GET', KEYS[1]) == ARGV[1]
if is_mine and not ARGV[2] and redis.call('EXISTS', KEYS[2]) == 0 then
  redis.call('DEL', KEYS[1])
  redis.call('SET', KEYS[4], 'released', 'PX', MEMORY)
  if index then
    redis.call('ZREM', index, KEYS[1])
  end
  return {'OK', false}
end

--- prelude
-- Have the name taken for so long, by one who no longer holds the lock: no copy of whatever he
-- sent finds his token there.
local function keep(left)
  local kept = KEPT .. ARGV[1]
  local _, owner, holder = read_meta(token_at(KEYS[5]) or '')
  -- A write that is allowed makes the rest allowed, on a server that is out of memory.
  redis.call('PEXPIRE', KEYS[1], left)
  -- Nobody will hand the lock on: whoever waits sleeps until then, and not one of them longer.
  for _, token in ipairs(redis.call('ZRANGE', KEYS[2], 0, -1)) do
    local alive, _, again = read_waiter(token)
    if alive and alive >= now_ms() and again > now_ms() + left then
      wake(token)
    end
  end
  redis.call('SET', KEYS[5],
    table.concat({ARGV[3], #kept, kept, owner == ARGV[1] and holder or ''}, ' '),
    'PX', math.max(redis.call('PTTL', KEYS[5]), left + META_MARGIN))
  redis.call('SET', KEYS[4], 'released', 'PX', MEMORY)
  if index then
    redis.call('ZADD', index, now_ms() + left, KEYS[1])
  end
  redis.call('SET', KEYS[1], kept, 'PX', left)
end

if is_mine and ARGV[2] then
  -- A fence is the time of the grant, or later where the clock was stepped back.
  local left = ARGV[2] + math.min(math.ceil(ARGV[3] / 1000) - now_ms(), 0)
  if left > 0 then
    keep(left)
    return {'OK', false}
  end
end
if is_mine then
  -- Deletes first: they are allowed, and make the rest allowed, on a server that is out of memory.
  local head = hand_on()
  if not head then
    redis.call('DEL', KEYS[1])
    if index then
      redis.call('ZREM', index, KEYS[1])
    end
  end
  redis.call('SET', KEYS[4], 'released', 'PX', MEMORY)
  return {'OK', head}
end
local token, value = ARGV[1], token_at(KEYS[1])
leave_queue(token)
redis.call('DEL', mailbox(token))
local mark = redis.call('GET', KEYS[4])
local head = baton_for(value)
if head == token then
  redis.call('DEL', KEYS[1])
end
if not mark then
  -- Lost: a copy of the acquire that is still on the wire must not take it again. (Out of memory, it may.)
  redis.pcall('SET', KEYS[4], 'left', 'PX', MEMORY)
end
if head == token or not value then
  head = hand_on()
end
if mark == 'released' then
  return {'OK', head or false}
end
return {'LOST', mark, head or false}
