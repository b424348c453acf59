-- Give the lease more time if the lock is still mine.
-- KEYS  1 name  2 meta  3 gone (this token's)  [4 index]
-- ARGV  1 token  2 ms  3 'replace' what is left, 'add' to it, or have 'least' so much
-- Reply {'OK', ms the lease now has}
--       {'LOST', how it was lost (JSON) or false}
if redis.pcall('GET', KEYS[1]) ~= ARGV[1] then
  return {'LOST', redis.call('GET', KEYS[3])}
end
local lease, left = tonumber(ARGV[2]), redis.call('PTTL', KEYS[1])
if ARGV[3] == 'add' then
  lease = lease + math.max(left, 0)
elseif ARGV[3] == 'least' then
  lease = math.max(lease, left)
end
redis.call('PEXPIRE', KEYS[1], whole(lease))
if redis.call('PTTL', KEYS[2]) < lease + META_MARGIN then
  redis.call('PEXPIRE', KEYS[2], whole(lease + META_MARGIN))
end
if KEYS[4] then
  local time = redis.call('TIME')
  redis.call('ZADD', KEYS[4], whole(time[1] * 1000 + math.floor(time[2] / 1000) + lease), KEYS[1])
end
return {'OK', lease}
