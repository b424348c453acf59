-- Take the lock: SET name token NX PX lease, with its fence, its holder record and its place in the index.
-- KEYS  1 name  2 meta  3 waiters  4 gone (this token's)  [5 index]
-- ARGV  1 token  2 lease ms  3 holder record (JSON)  4 wait ms (0: this caller does not wait, or no longer)
--       5 ms that meta outlives the lease  6 ms that a token given up is remembered
-- Reply {'OK', fence}
--       {'BUSY', ms left (-1: never expires), holder record or false}
--       {'GONE'}  this token was released, given up or forced out before
-- Error WRONGTYPE when the name holds no string
-- How long the index remembers a lock that never expires, since it was last met: a day.
local ENDLESS = 86400000
local token, lease, wait = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[4])
local value = redis.call('GET', KEYS[1])
if redis.call('EXISTS', KEYS[4]) == 1 then
  -- Who does not wait is told of the holder all the same, should the first answer have been lost.
  if wait > 0 or not value or value == token then
    return {'GONE'}
  end
end
local meta = redis.call('HMGET', KEYS[2], 'fence', 'token', 'holder')

if value and value ~= token then
  local left = redis.call('PTTL', KEYS[1])
  local ours = meta[2] == value
  if wait > 0 then
    redis.call('ZREMRANGEBYSCORE', KEYS[3], '-inf', now_ms)
    redis.call('ZADD', KEYS[3], now_ms + wait, token)
    grow(KEYS[3], wait)
  else
    redis.call('ZREM', KEYS[3], token)
    -- Given up here and now: a copy of this request that is still on the wire must not take the lock.
    redis.call('SET', KEYS[4], 'left', 'PX', ARGV[6])
  end
  if KEYS[5] and not ours then
    redis.call('ZADD', KEYS[5], now_ms + (left < 0 and ENDLESS or left), KEYS[1])
  end
  return {'BUSY', left, ours and meta[3]}
end

if value then
  -- Mine already: the reply to an earlier copy of this request was lost. The lease starts anew,
  -- but is not cut: this copy may be a late one, of a lock that was extended since.
  lease = math.max(lease, redis.call('PTTL', KEYS[1]))
end
local fence = tonumber(meta[1] or 0)
if meta[2] ~= token then
  fence = math.max(now_us, fence + 1)
  redis.call('HSET', KEYS[2], 'fence', string.format('%.0f', fence), 'token', token,
    'holder', ARGV[3], 'since', string.format('%.0f', now_ms))
end
grow(KEYS[2], lease + ARGV[5])
redis.call('ZREM', KEYS[3], token)
if KEYS[5] then
  redis.call('ZREMRANGEBYSCORE', KEYS[5], '-inf', now_ms - ARGV[5])
  redis.call('ZADD', KEYS[5], now_ms + lease, KEYS[1])
end
-- The lock itself comes last: an error above (a key of another type, a command denied) leaves none behind.
if value then
  redis.call('PEXPIRE', KEYS[1], lease)
else
  redis.call('SET', KEYS[1], token, 'NX', 'PX', lease)
end
return {'OK', string.format('%.0f', fence)}
