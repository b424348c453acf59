-- Is the lock still mine? Writes nothing.
-- KEYS  1 name  2 meta  3 gone (this token's)
-- ARGV  1 token
-- Reply {'OK', remaining ms}
--       {'LOST', how it was lost (JSON) or false}
--- timestamp
local value, known = value_at(KEYS[1]), read_known(redis.call('GET', KEYS[2]))
if is_mine(value, known, ARGV[1]) then
  return {'OK', math.floor(time_left(value, known))}
end
return {'LOST', redis.call('GET', KEYS[3])}
