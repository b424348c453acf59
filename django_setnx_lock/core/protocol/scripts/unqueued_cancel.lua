-- Give up an acquire whose outcome is unknown or no longer wanted. A copy still on the wire will be refused.
-- ARGV  1 token
-- Reply {'OK', false}
--- unqueued
local mark, known = redis.call('GET', KEYS[3]), known_beside()
-- First a write that is allowed: it makes the rest allowed, on a server that is out of memory.
redis.call('PEXPIRE', KEYS[3], MEMORY)
if not mark and is_mine(text(redis.pcall('GET', KEYS[1])), known, ARGV[1]) then
  remove(known)
  unlist()
end
redis.call('SET', KEYS[3], 'left', 'PX', MEMORY)
return {'OK', false}
