-- Leave those who hold it together. Sending it twice is as good as once.
-- KEYS  1 name  2 waiters  3 alive  4 gone (this token's)  5 meta  6 shares  7 holders  [8 index]
-- ARGV  1 token
-- Reply {'OK', waiter that something was left to, or false}
--       {'LOST', how it was lost (JSON) or false, waiter that something was left to, or false}
--- prelude
--- shared
local token = ARGV[1]
local value, group = standing(token_at(KEYS[1]))
local is_alone = value == token
if is_alone then
  -- What was to let others in never arrived.
  redis.call('DEL', KEYS[1])
end
if is_alone or group and redis.call('ZREM', KEYS[6], token) == 1 then
  redis.call('HDEL', KEYS[7], token)
  redis.call('SET', KEYS[4], 'released', 'PX', MEMORY)
  return {'OK', go_on(not is_alone and value)}
end
leave_queue(token)
redis.call('DEL', mailbox(token))
local mark = redis.call('GET', KEYS[4])
if not mark then
  -- Lost: a copy of the acquire that is still on the wire must not take it again. (Out of memory, it may.)
  redis.pcall('SET', KEYS[4], 'left', 'PX', MEMORY)
end
local given = false
if group and redis.call('ZREM', KEYS[6], BATON .. token) == 1 or not value then
  given = go_on(value)
elseif value == BATON .. token then
  redis.call('DEL', KEYS[1])
  value, given = false, hand_on()
end
given = given or left_to(value)
if mark == 'released' then
  return {'OK', given}
end
return {'LOST', mark, given}
