-- Is the lock still mine? Writes nothing.
-- ARGV  1 token
-- Reply {'OK', remaining ms (-1: without end)}
--       {'LOST', how it was lost (JSON) or false}
--- unqueued
local mark, value, known = redis.call('GET', KEYS[3]), text(redis.pcall('GET', KEYS[1])), known_beside()
if mark or not is_mine(value, known, ARGV[1]) then
  return {'LOST', mark}
end
return {'OK', math.floor(time_left(value, known))}
