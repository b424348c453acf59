-- Let readers join one who holds the lock alone, as the first of them. Sending it twice is as good as once.
-- KEYS  1 name  2 waiters  3 alive  4 gone (this token's)  5 meta  6 shares  7 holders  [8 index]
-- ARGV  1 token
-- Reply {'OK', waiter that something was left to, or false}
--       {'LOST', how it was lost (JSON) or false}
--- prelude
--- shared
local token = ARGV[1]
local value, group = standing(token_at(KEYS[1]))
if value ~= token then
  if group and redis.call('ZSCORE', KEYS[6], token) then
    return {'OK', left_to(value)}
  end
  return {'LOST', redis.call('GET', KEYS[4])}
end
local fence, owner, record = read_meta(token_at(KEYS[5]) or '')
if owner ~= token then
  fence, record = math.max(now_us(), (fence or 0) + 1), ''
end
local left = redis.call('PTTL', KEYS[1])
value = READERS .. whole(fence)
redis.call('DEL', KEYS[6], KEYS[7])
redis.call('HSET', KEYS[7], token, whole(fence) .. ' ' .. record)
redis.call('ZADD', KEYS[6], whole(now_ms() + left), token)
redis.call('SET', KEYS[1], value, 'PX', whole(left))
-- A copy of the acquire that is still on the wire must not wait for the lock beside who has it.
redis.call('SET', KEYS[4], 'left', 'PX', MEMORY)
local given = admit(READERS)
rouse(READERS)
settle(value, fence, record)
return {'OK', given}
