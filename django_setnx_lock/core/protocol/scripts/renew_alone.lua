-- Give the lease more time if the lock is still mine, touching nothing but its name: a node of a cluster
-- that is giving the slot away serves what needs one key, and refuses what needs several.
-- KEYS  1 name
-- ARGV  1 token  2 ms to have at the least
-- Reply {'OK', ms the lease now has}
--       {'LOST', false}
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return {'LOST', false}
end
local lease = math.max(redis.call('PTTL', KEYS[1]), tonumber(ARGV[2]))
redis.call('PEXPIRE', KEYS[1], lease)
return {'OK', lease}
