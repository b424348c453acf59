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
local left
if value == token then
  left = redis.call('PTTL', NAME)
elseif group then
  left = redis.call('ZSCORE', SHARES, token)
  left = left and left - now_ms()
end
if not left then
  return {'LOST', redis.call('GET', TOMBSTONE)}
end
local lease = math.max(left, ARGV[2] + 0)
-- First a write that is allowed: it makes the rest allowed, on a server that is out of memory.
grow(META, META_MARGIN)
if group then
  redis.call('ZADD', SHARES, whole(now_ms() + lease), token)
  settle(value, last_fence())
else
  redis.call('PEXPIRE', META, whole(lease + margin_of_meta(left)))
  redis.call('PEXPIRE', NAME, whole(lease))
  if INDEX then
    redis.call('ZADD', INDEX, whole(now_ms() + lease), NAME)
  end
end
local reply = {'OK', lease}
return group and with_stop(reply, redis.pcall('HGET', HOLDERS, token)) or with_own_stop(reply, token)
