-- Does anybody hold the lock? A value that is over is nobody's. Writes nothing.
-- KEYS  1 name  2 meta
-- ARGV  1 unit of the value
-- Reply 1 or 0
-- Error WRONGTYPE when what the name holds is no time in that unit
--- timestamp
local value = redis.call('GET', KEYS[1])
local left = time_left(value, read_known(redis.call('GET', KEYS[2])), ARGV[1])
if not left then
  return no_time(value, ARGV[1])
end
return left > 0 and 1 or 0
