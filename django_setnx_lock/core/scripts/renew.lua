-- Give the lease more time if the lock is still mine.
-- KEYS  1 name  2 meta  3 gone (this token's)  [4 index]
-- ARGV  1 token  2 ms  3 'replace' what is left, 'add' to it, or have 'least' so much  4 ms that meta outlives the lease
-- Reply {'OK', ms the lease now has}
--       {'LOST', how it was lost (JSON) or false}
if token_at(KEYS[1]) ~= ARGV[1] then
  return {'LOST', redis.call('GET', KEYS[3])}
end
local lease = tonumber(ARGV[2])
if ARGV[3] == 'add' then
  lease = lease + math.max(redis.call('PTTL', KEYS[1]), 0)
elseif ARGV[3] == 'least' then
  lease = math.max(redis.call('PTTL', KEYS[1]), lease)
end
redis.call('PEXPIRE', KEYS[1], lease)
grow(KEYS[2], lease + ARGV[4])
if KEYS[4] then
  redis.call('ZADD', KEYS[4], now_ms + lease, KEYS[1])
end
return {'OK', lease}
