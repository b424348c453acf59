-- Give a share more time if it is still held.
-- KEYS  1 name  2 waiters  3 alive  4 gone (this token's)  5 meta  6 shares  7 holders  [8 index]
-- ARGV  1 token  2 ms  3 'replace' what is left, 'add' to it, or have 'least' so much
-- Reply {'OK', ms the lease now has}
--       {'LOST', how it was lost (JSON) or false}
--- prelude
--- shared
local token = ARGV[1]
local value, group = standing(token_at(KEYS[1]))
local left
if value == token then
  left = redis.call('PTTL', KEYS[1])
elseif group then
  left = redis.call('ZSCORE', KEYS[6], token)
  left = left and left - now_ms()
end
if not left then
  return {'LOST', redis.call('GET', KEYS[4])}
end
local lease = tonumber(ARGV[2])
if ARGV[3] == 'add' then
  lease = lease + left
elseif ARGV[3] == 'least' then
  lease = math.max(left, lease)
else
  -- What is left may be cut: the next who waits was told of more.
  wake_if_later(lease)
end
if group then
  redis.call('ZADD', KEYS[6], whole(now_ms() + lease), token)
  settle(value, last_fence())
else
  redis.call('PEXPIRE', KEYS[1], whole(lease))
  grow(KEYS[5], lease + META_MARGIN)
  if KEYS[8] then
    redis.call('ZADD', KEYS[8], whole(now_ms() + lease), KEYS[1])
  end
end
return {'OK', lease}
