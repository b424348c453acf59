-- Give up an acquire whose outcome is unknown or no longer wanted. A copy still on the wire will be refused.
-- KEYS  1 name  2 meta  3 gone (this token's)  [4 index]
-- ARGV  1 token
-- Reply {'OK', false}
--- timestamp
local mark, known = redis.call('GET', KEYS[3]), read_known(redis.call('GET', KEYS[2]))
-- First a write that is allowed: it makes the rest allowed, on a server that is out of memory.
redis.call('PEXPIRE', KEYS[3], MEMORY)
if not mark and is_mine(value_at(KEYS[1]), known, ARGV[1]) then
  remove(known, KEYS[4])
end
redis.call('SET', KEYS[3], 'left', 'PX', MEMORY)
return {'OK', false}
