-- Let the lock go if it is still mine, to the first who waits. Sending it twice is as good as once.
-- KEYS  1 name  2 waiters  3 alive  4 gone (this token's)  [5 index]
-- ARGV  1 token
-- Reply {'OK', waiter that it was handed to, or false}
--       {'LOST', how it was lost (JSON) or false, waiter that it is handed to, or false}

-- Held, and nobody waits: most are.
local is_mine = redis.pcall('GET', KEYS[1]) == ARGV[1]
if is_mine and redis.call('EXISTS', KEYS[2]) == 0 then
  redis.call('DEL', KEYS[1])
  redis.call('SET', KEYS[4], 'released', 'PX', MEMORY)
  if KEYS[5] then
    redis.call('ZREM', KEYS[5], KEYS[1])
  end
  return {'OK', false}
end

--- prelude
if is_mine then
  -- Deletes first: they are allowed, and make the rest allowed, on a server that is out of memory.
  local head = hand_on()
  if not head then
    redis.call('DEL', KEYS[1])
    if KEYS[5] then
      redis.call('ZREM', KEYS[5], KEYS[1])
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
