-- Put a token that the caller chose in the place of the random one that the lock was taken with.
-- KEYS  1 name  2 meta  3 gone (the random token's)  4 gone (the chosen one's)
-- ARGV  1 the random token  2 the chosen one  3 ms that the random one is remembered
-- Reply {'OK'}
--       {'LOST', how it was lost (JSON) or false}
local value = token_at(KEYS[1])
if value == ARGV[2] and redis.call('HMGET', KEYS[2], 'taken_with')[1] == ARGV[1] then
  -- A copy of a request that was carried out.
  return {'OK'}
end
if value ~= ARGV[1] then
  return {'LOST', redis.call('GET', KEYS[3])}
end
-- What is remembered of an earlier use of the chosen one says nothing of this one.
redis.call('DEL', KEYS[4])
-- A copy of the acquire that is still on the wire must not take the lock once it is free.
redis.call('SET', KEYS[3], 'left', 'PX', ARGV[3])
redis.call('HSET', KEYS[2], 'token', ARGV[2], 'taken_with', ARGV[1])
grow(KEYS[2], redis.call('PTTL', KEYS[1]) + ARGV[3])
redis.call('SET', KEYS[1], ARGV[2], 'KEEPTTL')
return {'OK'}
