-- Have at least so much time left of a share if it is still held. What is left is never cut.
-- ARGV  1 token  2 ms
-- Reply {'OK', ms the lease now has[, holder record in which an operator asks it to stop]}
--       {'LOST', how it was lost (JSON) or false}
--- shared_keys
--- prelude
--- shared
--- stopping
local token = ARGV[1]
local value, group = standing(token_at(NAME))
local ends = group and redis.call('ZSCORE', SHARES, token)
if not ends then
  return {'LOST', redis.call('GET', TOMBSTONE)}
end
local lease = math.max(ends - now_ms(), ARGV[2] + 0)
-- First a write that is allowed: it makes the rest allowed, on a server that is out of memory.
grow(META, META_MARGIN)
redis.call('ZADD', SHARES, whole(now_ms() + lease), token)
settle(value, last_fence())
return with_stop({'OK', lease}, redis.pcall('HGET', HOLDERS, token))
