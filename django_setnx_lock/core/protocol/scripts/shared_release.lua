-- Leave those who hold it together. Sending it twice is as good as once.
-- ARGV  1 token  2 'once', 'again' or '', as of release.lua
-- Reply {'OK', waiter that something was left to, or false}
--       {'LOST', how it was lost (JSON) or false, waiter that something was left to, or false}
--- shared_keys
--- prelude
--- shared
local token = ARGV[1]
local value, group = standing(token_at(NAME))
if group and redis.call('ZREM', SHARES, token) == 1 then
  redis.call('HDEL', HOLDERS, token)
  if ARGV[2] ~= 'once' then
    redis.call('SET', TOMBSTONE, 'released', 'PX', MEMORY)
  end
  return {'OK', go_on(value)}
end
leave_queue(token)
drop_mail(token)
local mark = redis.call('GET', TOMBSTONE)
if not mark then
  -- An earlier copy of this request has let it go, unless it was lost: then it is here still, or that is remembered.
  mark = ARGV[2] == 'again' and not redis.call('ZSCORE', SHARES, token) and 'released' or 'left'
  -- Lost: a copy of the acquire that is still on the wire must not take it again. (Out of memory, it may.)
  redis.pcall('SET', TOMBSTONE, mark, 'PX', MEMORY)
end
local given = false
if group and redis.call('ZREM', SHARES, BATON .. token) == 1 or not value then
  given = go_on(value)
elseif value == BATON .. token then
  redis.call('DEL', NAME)
  value, given = false, hand_on()
end
given = given or left_to(value)
if mark == 'released' then
  return {'OK', given}
end
return {'LOST', mark, given}
