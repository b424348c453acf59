-- The names in the index whose leases end first. Writes nothing.
-- KEYS  1 index
-- ARGV  1 how many names at most
-- Reply {of how many names the lease runs, names}
local time = redis.call('TIME')
local from = string.format('(%d', time[1] * 1000 + time[2] / 1000)
local running = redis.call('ZCOUNT', KEYS[1], from, '+inf')
return {running, redis.call('ZRANGEBYSCORE', KEYS[1], from, '+inf', 'LIMIT', 0, ARGV[1])}
