-- Give the lease more time if the lock is still mine.
-- KEYS  1 name  2 waiters  3 alive  4 gone (this token's)  5 meta  [6 index]
-- ARGV  1 token  2 ms  3 'replace' what is left, 'add' to it, or have 'least' so much
-- Reply {'OK', ms the lease now has}
--       {'LOST', how it was lost (JSON) or false}
--- prelude
if token_at(KEYS[1]) ~= ARGV[1] then
  return {'LOST', redis.call('GET', KEYS[4])}
end
local lease = tonumber(ARGV[2])
if ARGV[3] == 'add' then
  lease = lease + math.max(redis.call('PTTL', KEYS[1]), 0)
elseif ARGV[3] == 'least' then
  lease = math.max(redis.call('PTTL', KEYS[1]), lease)
else
  -- What is left may be cut: the next who waits was told of more.
  wake_if_later(lease)
end
redis.call('PEXPIRE', KEYS[1], lease)
grow(KEYS[5], lease + META_MARGIN)
if KEYS[6] then
  redis.call('ZADD', KEYS[6], now_ms() + lease, KEYS[1])
end
return {'OK', lease}
