-- Is the lock still mine? Writes nothing.
-- KEYS  1 name  2 meta  3 gone (this token's)
-- ARGV  1 token
-- Reply {'OK', remaining ms}
--       {'LOST', how it was lost (JSON) or false}
--- timestamp
local mark = redis.call('GET', KEYS[3])
local value, known = value_at(KEYS[1]), read_known(redis.call('GET', KEYS[2]))
if mark or not is_mine(value, known, ARGV[1]) then
  return {'LOST', mark}
end
return {'OK', math.floor(time_left(value, known))}
