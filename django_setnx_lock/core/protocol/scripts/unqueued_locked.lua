-- Does anybody hold the lock? A value that is over is nobody's. Writes nothing.
-- ARGV  1 unit of the value
-- Reply 1 or 0
-- Error WRONGTYPE when what the name holds is no time in that unit
--- unqueued
local left, wrong = time_left(redis.call('GET', KEYS[1]), known_beside(), ARGV[1])
return wrong or (left and 1 or 0)
