-- Let readers join one who holds the lock alone, as the first of them. Sending it twice is as good as once.
-- ARGV  1 token
-- Reply {'OK', waiter that something was left to, or false}
--       {'LOST', how it was lost (JSON) or false}
--- shared_keys
--- prelude
--- shared
local token = ARGV[1]
local value, group = standing(token_at(NAME))
if value ~= token then
  if group and redis.call('ZSCORE', SHARES, token) then
    return {'OK', left_to(value)}
  end
  return {'LOST', redis.call('GET', TOMBSTONE)}
end
local fence, owner, record = read_meta(token_at(META) or '')
if owner ~= token then
  fence, record = math.max(now_us(), (fence or 0) + 1), ''
end
local left = redis.call('PTTL', NAME)
value = READERS .. whole(fence)
drop_shares()
redis.call('HSET', HOLDERS, token, whole(fence) .. ' ' .. record)
redis.call('ZADD', SHARES, whole(now_ms() + left), token)
redis.call('SET', NAME, value, 'PX', whole(left))
-- A copy of the acquire that is still on the wire must not wait for the lock beside who has it.
redis.call('SET', TOMBSTONE, 'left', 'PX', MEMORY)
local given = admit(READERS)
rouse(READERS)
settle(value, fence, record)
return {'OK', given}
