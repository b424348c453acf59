-- Have at least so much of the lease left if the lock is still mine. What is left is never cut.
-- ARGV  1 token  2 ms  3 and 4 of a timestamp: its unit, and whether Redis is to remove it
-- Reply {'OK', ms the lease now has}
--       {'LOST', how it was lost (JSON) or false}
--- unqueued
local token, mark, known = ARGV[1], redis.call('GET', KEYS[3]), known_beside()
local value = text(redis.pcall('GET', KEYS[1]))
if mark or not is_mine(value, known, token) then
  return {'LOST', mark}
end
local before = known.ends or now_ms() + math.max(time_left(value, known), 0)
local ends = math.max(before, now_ms() + ARGV[2])
-- First a write that is allowed: it makes the rest allowed, on a server that is out of memory.
redis.call('PEXPIRE', KEYS[2], whole(ends - now_ms() + META_MARGIN))
list(ends)
if known.token == token then
  write(token, known.fence, ends, known.record, known.unit, ARGV[4])
else
  redis.call('PEXPIRE', KEYS[1], whole(ends - now_ms()))
end
return {'OK', ends - now_ms()}
