-- Give up an acquire whose outcome is unknown or no longer wanted. A copy still on the wire will be refused.
-- KEYS  1 name  2 meta  3 gone (this token's)  [4 index]
-- ARGV  1 token
-- Reply {'OK', false}
-- First a write that is allowed: it makes the rest allowed, on a server that is out of memory.
redis.call('PEXPIRE', KEYS[3], MEMORY)
if redis.pcall('GET', KEYS[1]) == ARGV[1] then
  redis.call('DEL', KEYS[1])
  if KEYS[4] then
    redis.call('ZREM', KEYS[4], KEYS[1])
  end
end
redis.call('SET', KEYS[3], 'left', 'PX', MEMORY)
return {'OK', false}
